"""`edgeai doctor` names what is broken in a release of the chart, on a real API.

A GlobalManager and a LocalController run as processes: they write the Leases and sessions that pods
would write.
"""

import asyncio
import base64
import contextlib
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli.api import Object
from edgeai.cli.doctor.diagnosis import diagnose
from edgeai.cli.doctor.finding import Finding
from edgeai.times import micro_time
from globalmanager.ha.elector import REPLICA_LABEL
from tests.cluster.controlplane import ControlPlane
from tests.cluster.edge import Edge
from tests.cluster.install.release import CORE, DEPLOYMENT, NAMESPACE, Release
from tests.cluster.lone_node import LoneNode
from tests.edgeai.cli.command import edgeai
from tests.support.certificates import Authority
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
LEASES: Final = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
LEADER: Final = f"{LEASES}/edgeai-globalmanager"
DAEMON_SET: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/localcontroller"
BINDING: Final = f"{RBAC}/clusterrolebindings/edgeai-globalmanager"


class DoctorSite:
    """One that is well, and what a test may do to it."""

    def __init__(self, plane: ControlPlane, manager: GlobalManager, edge: Edge, path: Path) -> None:
        self.plane = plane
        self.client: Client = plane.client
        self.manager = manager
        self.edge = edge
        self.directory = path

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
        yield DoctorSite(plane, manager, edge, directory)
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
    schema = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del schema["properties"]["spec"]["properties"]["edgeWorker"]
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


@contextlib.contextmanager
def silent_leader(it: DoctorSite) -> Iterator[None]:
    it.manager.stop(signal.SIGKILL)
    yield
    it.manager.start()


@contextlib.contextmanager
def no_leader(it: DoctorSite) -> Iterator[None]:
    it.manager.stop(signal.SIGKILL)
    it.client.delete(LEADER)
    yield
    it.manager.start()


@contextlib.contextmanager
def no_session(it: DoctorSite) -> Iterator[None]:
    it.edge.stop()
    yield
    it.edge.start()


@contextlib.contextmanager
def clock_ahead(it: DoctorSite) -> Iterator[None]:
    """Of a further GlobalManager."""
    replica = {REPLICA_LABEL: "edgeai-globalmanager-9"}
    renewed = micro_time(datetime.now(UTC) + timedelta(seconds=90))
    metadata = {"name": "edgeai-globalmanager-9", "namespace": NAMESPACE, "labels": replica}
    spec = {"holderIdentity": "far_9", "leaseDurationSeconds": 15, "renewTime": renewed}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    it.client.create({**lease, "metadata": metadata, "spec": spec})
    yield
    it.client.delete(f"{LEASES}/edgeai-globalmanager-9")


def certificate(lasts: timedelta) -> Break:
    """Of the CA that edges trust."""

    @contextlib.contextmanager
    def broken(it: DoctorSite) -> Iterator[None]:
        tls, ca = f"{CORE}/secrets/globalmanager-tls", f"{CORE}/configmaps/globalmanager-ca"
        saved, trusted = it.client.get(tls)["data"], it.client.get(ca)["data"]
        authority = Authority(it.directory, f"ca-{lasts.days}", days=365)
        pair = authority.issue(f"tls-{lasts.days}", usage="serverAuth", lasts=lasts)
        text = base64.b64encode(pair.certificate.read_bytes()).decode()
        it.client.patch(tls, {"data": {"tls.crt": text}})
        it.client.patch(ca, {"data": {"ca.crt": authority.certificate.read_text()}})
        yield
        it.client.patch(tls, {"data": saved})
        it.client.patch(ca, {"data": trusted})

    return broken


@contextlib.contextmanager
def other_authority(it: DoctorSite) -> Iterator[None]:
    ca = f"{CORE}/configmaps/globalmanager-ca"
    trusted = it.client.get(ca)["data"]
    other = Authority(it.directory, "other", days=365)
    it.client.patch(ca, {"data": {"ca.crt": other.certificate.read_text()}})
    yield
    it.client.patch(ca, {"data": trusted})


def label(value: Any) -> Object:
    return {"metadata": {"labels": {"node-role.kubernetes.io/edge": value}}}


# What is broken -> how, the check that names it, its level, words, and checks of what follows.
BROKEN: Final[dict[str, tuple[Break, str, str, str, set[str]]]] = {
    "a definition is missing": (
        without(CRD),
        *("definitions", "error", "jointinferenceservices.edgeai.io is not installed", set()),
    ),
    "a definition of an older release": (
        older_definition,
        *("definitions", "error", "has no field .spec.edgeWorker", set()),
    ),
    "no certificate of the edge port": (
        without(f"{CORE}/secrets/globalmanager-tls"),
        *("files", "error", f"Secret {NAMESPACE}/globalmanager-tls is missing", set()),
    ),
    "no CA for the edges": (
        without(f"{CORE}/configmaps/globalmanager-ca"),
        *("files", "error", f"ConfigMap {NAMESPACE}/globalmanager-ca is missing", set()),
    ),
    "no rights": (without(BINDING), *("rights", "error", "may not", set())),
    "scaled to none": (
        changed(DEPLOYMENT, {"spec": {"replicas": 0}}, {"spec": {"replicas": 2}}),
        *("globalmanager", "error", "is scaled to 0", set()),
    ),
    "no room": (no_room, *("globalmanager", "error", "didn't match", set())),
    "a quota": (quota, *("globalmanager", "warning", "exceeded quota: none", set())),
    "no leader": (no_leader, *("leader", "error", "no GlobalManager leads", {"edges"})),
    "a silent leader": (silent_leader, *("leader", "error", "has not renewed", {"edges"})),
    "a clock that is ahead": (clock_ahead, *("clocks", "warning", "far_9 is ", set())),
    "a certificate that ends soon": (
        certificate(timedelta(days=10)),
        *("certificates", "warning", "ends at", set()),
    ),
    "a certificate that has ended": (
        certificate(timedelta(days=-1)),
        *("certificates", "error", "ended at", set()),
    ),
    "another CA": (other_authority, *("certificates", "error", "has no such CA", set())),
    "no session": (no_session, *("edges", "error", f"{NODE} has no session", set())),
    "no edge node": (
        changed(f"/api/v1/nodes/{NODE}", label(None), label("")),
        *("edges", "warning", "no node has the label", set()),
    ),
}


@pytest.mark.parametrize(
    ("break_it", "check", "level", "words", "follow"), BROKEN.values(), ids=BROKEN
)
def test_what_is_broken_is_named(
    well: DoctorSite, break_it: Break, check: str, level: str, words: str, follow: set[str]
) -> None:
    def named() -> bool:
        found = well.bad()
        assert found, "nothing is wrong"
        first = found[0]
        assert (first.check, first.level, words in first.message) == (check, level, True), found
        assert first.remedy
        assert {each.check for each in found} <= {check, *follow}, found
        return True

    with break_it(well):
        eventually("the diagnosis", named, timeout_s=SEEN_S, poll_s=0.5)


def test_a_namespace_that_is_not_there_is_named(well: DoctorSite) -> None:
    found = asyncio.run(diagnose(well.plane.kubeconfig, "elsewhere"))
    (finding,) = [each for each in found if each.level != "ok"]
    assert "namespace elsewhere does not exist" in finding.message
    assert "--namespace" in finding.remedy
