"""`edgeai doctor` names what is broken in a release of the chart, on a real API.

A GlobalManager and a LocalController run as processes: they write the Leases and sessions that pods
would write.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import pytest

from edgeai.cli.api import Object
from edgeai.cli.doctor.diagnosis import diagnose
from edgeai.cli.doctor.finding import Finding
from tests.cluster.controlplane import ControlPlane
from tests.cluster.edge import Edge
from tests.cluster.install.release import CORE, DEPLOYMENT, NAMESPACE, Release
from tests.cluster.lone_node import LoneNode
from tests.edgeai.cli.command import edgeai
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(120)
NODE: Final = "edge0"
TOKEN: Final = "secret-of-edge0"
SEEN_S: Final = 30.0
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
CRD: Final = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jointinferenceservices.edgeai.io"
)
LEADER: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/edgeai-globalmanager"
TLS: Final = f"{CORE}/secrets/globalmanager-tls"
CA: Final = f"{CORE}/configmaps/globalmanager-ca"
BINDING: Final = f"{RBAC}/clusterrolebindings/edgeai-globalmanager"


class DoctorSite:
    """One that is well, and what a test may do to it."""

    def __init__(self, plane: ControlPlane, manager: GlobalManager, edge: Edge) -> None:
        self.plane = plane
        self.client: Client = plane.client
        self.manager = manager
        self.edge = edge

    def bad(self) -> list[Finding]:
        found = asyncio.run(diagnose(self.plane.kubeconfig, NAMESPACE))
        return [each for each in found if each.level != "ok"]

    def wait_until_well(self) -> None:
        def check() -> bool:
            found = self.bad()
            assert not found, found
            return True

        eventually("an installation that is well", check, timeout_s=SEEN_S, poll_s=0.5)


@pytest.fixture(scope="module")
def installation(
    plane: ControlPlane,
    nodes: None,
    edge_node: LoneNode,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[DoctorSite]:
    done = edgeai("credentials", "--kubeconfig", str(plane.kubeconfig))
    assert done.returncode == 0, done.stderr
    release = Release(plane)
    release.install()
    directory = tmp_path_factory.mktemp("manager")
    flags = ("--lease-duration-s", "4", "--lease-renew-deadline-s", "3", "--lease-retry-s", "0.5")
    manager = GlobalManager(
        kubeconfig=plane.kubeconfig,
        system_namespace=NAMESPACE,
        directory=directory,
        tokens={NODE: TOKEN},
        flags=flags,
    )
    edge = Edge(NODE, token=TOKEN, port=manager.edge_port, directory=directory / NODE)
    try:
        edge_node.end_session()
        manager.start()
        edge.start()
        yield DoctorSite(plane, manager, edge)
    finally:
        edge.stop()
        manager.stop()
        release.remove()
        edge_node.open_session()


@pytest.fixture
def well(installation: DoctorSite) -> DoctorSite:
    installation.wait_until_well()
    return installation


def test_a_release_is_well(well: DoctorSite) -> None:
    done = edgeai("doctor", "--kubeconfig", str(well.plane.kubeconfig))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{NODE}" not in done.stderr


Break = Callable[[DoctorSite], AbstractContextManager[None]]


def fresh(object_: Object) -> Object:
    """As it is made anew."""
    metadata = object_["metadata"]
    keys = ("name", "namespace", "labels", "annotations")
    kept = {key: metadata[key] for key in keys if key in metadata}
    return {**{k: v for k, v in object_.items() if k != "status"}, "metadata": kept}


def without(path: str) -> Break:
    @contextlib.contextmanager
    def broken(it: DoctorSite) -> Iterator[None]:
        saved = it.client.get(path)
        it.client.delete(path)
        eventually("the deletion", lambda: it.client.find(path) is None)
        yield
        if it.client.find(path) is None:  # its owner may have made it again
            it.client.request("POST", path.rpartition("/")[0], fresh(saved))

    return broken


def changed(path: str, patch: Object, back: Object) -> Break:
    @contextlib.contextmanager
    def broken(it: DoctorSite) -> Iterator[None]:
        it.client.patch(path, patch)
        yield
        it.client.patch(path, back)

    return broken


@contextlib.contextmanager
def older_definition(it: DoctorSite) -> Iterator[None]:
    saved, older = it.client.get(CRD), it.client.get(CRD)
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del schema["properties"]["edgeWorker"]
    del schema["x-kubernetes-validations"]  # they name the field
    it.client.patch(CRD, {"spec": older["spec"]})
    it.client.request("PUT", CRD, {**older, "metadata": it.client.get(CRD)["metadata"]})
    yield
    it.client.request("PUT", CRD, {**saved, "metadata": it.client.get(CRD)["metadata"]})


@contextlib.contextmanager
def quota(it: DoctorSite) -> Iterator[None]:
    """A third pod is not allowed. The quota counts what is there only after a moment."""
    metadata = {"name": "none", "namespace": NAMESPACE}
    spec = {"hard": {"pods": "0"}}
    it.client.create(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec}
    )
    path = f"{CORE}/resourcequotas/none"
    eventually("the quota", lambda: (it.client.get(path).get("status") or {}).get("hard"))
    it.client.patch(DEPLOYMENT, {"spec": {"replicas": 3}})
    yield
    it.client.patch(DEPLOYMENT, {"spec": {"replicas": 2}})
    it.client.delete(path)


@contextlib.contextmanager
def no_room(it: DoctorSite) -> Iterator[None]:
    selector = {"spec": {"template": {"spec": {"nodeSelector": {"room": "none"}}}}}
    it.client.patch(DEPLOYMENT, {"spec": {"replicas": 0}})
    eventually("no pod", lambda: not it.client.get(DEPLOYMENT)["status"].get("replicas"))
    it.client.patch(DEPLOYMENT, {"spec": {**selector["spec"], "replicas": 2}})
    yield
    without_selector = {"spec": {"template": {"spec": {"nodeSelector": None}}}}
    it.client.patch(DEPLOYMENT, without_selector)


def dead_leader(*paths: str) -> Break:
    """Args: paths: of what is gone with it"""

    @contextlib.contextmanager
    def broken(it: DoctorSite) -> Iterator[None]:
        it.manager.stop(signal.SIGKILL)
        for path in paths:
            it.client.delete(path)
        yield
        it.manager.start()

    return broken


@contextlib.contextmanager
def no_session(it: DoctorSite) -> Iterator[None]:
    it.edge.stop()
    yield
    it.edge.start()


def label(value: Any) -> Object:
    return {"metadata": {"labels": {"node-role.kubernetes.io/edge": value}}}


# Check and level -> what is broken -> how, and words of the message. What a check reads of objects
# that somebody has written is tested without a cluster: tests/edgeai/cli/doctor.
BROKEN: Final[dict[tuple[str, str], dict[str, tuple[Break, str]]]] = {
    ("definitions", "error"): {
        "one is missing": (without(CRD), "jointinferenceservices.edgeai.io is not installed"),
        "one of an older release": (older_definition, "has no field .spec.edgeWorker"),
    },
    ("files", "error"): {
        "no Secret": (without(TLS), f"Secret {NAMESPACE}/globalmanager-tls is missing"),
        "no CA": (without(CA), f"ConfigMap {NAMESPACE}/globalmanager-ca is missing"),
    },
    ("rights", "error"): {"none": (without(BINDING), "may not")},
    ("globalmanager", "error"): {
        "scaled to none": (
            changed(DEPLOYMENT, {"spec": {"replicas": 0}}, {"spec": {"replicas": 2}}),
            "is scaled to 0",
        ),
        "no room": (no_room, "didn't match"),
    },
    ("globalmanager", "warning"): {"a quota": (quota, "exceeded quota: none")},
    ("leader", "error"): {
        "none": (dead_leader(LEADER), "no GlobalManager leads"),
        "a silent one": (dead_leader(), "has not renewed"),
    },
    ("edges", "error"): {"no session": (no_session, f"{NODE} has no session")},
    ("edges", "warning"): {
        "none": (
            changed(f"/api/v1/nodes/{NODE}", label(None), label("")),
            "no node has the label",
        ),
    },
}
FOLLOW: Final = {"leader": {"edges"}}
"""Check -> checks of what follows."""
CASES: Final = [
    pytest.param(*where, *how, id=f"{where[0]}: {name}")
    for where, ways in BROKEN.items()
    for name, how in ways.items()
]


@pytest.mark.parametrize(("check", "level", "break_it", "words"), CASES)
def test_what_is_broken_is_named(
    well: DoctorSite, check: str, level: str, break_it: Break, words: str
) -> None:
    def named() -> bool:
        found = well.bad()
        assert found, "nothing is wrong"
        first = found[0]
        assert (first.check, first.level, words in first.message) == (check, level, True), found
        assert first.remedy
        assert {each.check for each in found} <= {check, *FOLLOW.get(check, ())}, found
        return True

    with break_it(well):
        eventually("the diagnosis", named, timeout_s=SEEN_S, poll_s=0.5)
