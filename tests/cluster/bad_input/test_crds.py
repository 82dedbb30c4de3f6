"""CustomResourceDefinitions that are missing, of another version, or keep no status."""

import base64
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from edgeai.cli.api import Object, path_of
from edgeai.ids import Uid
from edgeai.kube.remedies import UPGRADE
from globalmanager.kinds.shared.secrets import worker_secret
from tests.cluster.bad_input.unready import (
    Launch,
    connected_edge,
    untimed,
    wait_for_deployment,
)
from tests.cluster.controlplane import CRDS, ControlPlane
from tests.cluster.samples import model, service
from tests.support.manager import SYSTEM_NAMESPACE
from tests.support.waiting import eventually

WATCHED_S: Final = 6.0  # shorter than the pause between two tries of what is not kept
WORKER: Final = "digits-edge"
JOBS: Final = "jointinferenceservices.edgeai.io"

Crd = dict[str, Any]


def crds(group: str = "") -> list[Crd]:
    """Those of deploy/, of one group or all."""
    return [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob(f"{group}*.yaml"))]


def apply(plane: ControlPlane, documents: list[Crd]) -> None:
    done = plane.kubectl("apply", "-f", "-", documents=documents)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def bare(plane: ControlPlane) -> ControlPlane:
    """Without the CRDs, and so without any object of them."""
    done = plane.kubectl("delete", "--ignore-not-found", "--wait", "-f", str(CRDS))
    assert done.returncode == 0, done.stderr
    return plane


def test_crds_that_are_not_installed_are_told_and_awaited(
    bare: ControlPlane, launch: Launch
) -> None:
    manager = launch(bare.kubeconfig)
    for each in crds():
        manager.wait_for_reason(f"{each['metadata']['name']}: ", "not installed", UPGRADE)
    apply(bare, crds("edgeai.io"))
    manager.wait_for_no_reason(f"{JOBS}: ")
    manager.wait_for_reason("sedna.io is not served", "not installed", ready=True)
    apply(bare, crds())
    manager.wait_until_well()


@pytest.fixture
def installed(plane: ControlPlane) -> Iterator[ControlPlane]:
    """With the CRDs, also afterwards."""
    plane.install_crds()
    yield plane
    plane.install_crds()


def of_another_version(crd: Crd) -> Crd:
    versions = crd["spec"]["versions"]
    # Two whole schemas would be too long for the annotation of `kubectl apply`.
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    older = {"name": "v1alpha0", "served": True, "storage": False, "schema": schema}
    unserved = [{**version, "served": False} for version in versions]
    return {**crd, "spec": {**crd["spec"], "versions": [*unserved, older]}}


def test_crds_of_another_version_are_told_and_replaced(
    installed: ControlPlane, launch: Launch
) -> None:
    apply(installed, [of_another_version(each) for each in crds()])
    manager = launch(installed.kubeconfig)
    manager.wait_for_reason(f"{JOBS}: ", "without edgeai.io/v1alpha1", UPGRADE)
    apply(installed, crds())
    manager.wait_until_well()


def without_status(version: Object) -> None:
    del version["subresources"]


def without(*names: str) -> Callable[[Object], None]:
    """Fields of .status, or of its conditions."""

    def prune(version: Object) -> None:
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        for name in names:
            outer, _, inner = name.rpartition(".")
            schema = status["properties"][outer]["items"] if outer else status
            del schema["properties"][inner]
            if inner in schema.get("required", ()):
                schema["required"].remove(inner)

    return prune


def demanding(name: str) -> Callable[[Object], None]:
    """A field of .status that is not written any more."""

    def demand(version: Object) -> None:
        version["schema"]["openAPIV3Schema"]["properties"]["status"]["required"] = [name]

    return demand


# CRD -> what was different in an older one, and what is told.
OLDER: Final[dict[str, tuple[Callable[[Object], None], str]]] = {
    JOBS: (without("workers"), "drops status.workers"),
    "jointinferenceservices.sedna.io": (without_status, "has no status subresource"),
    # Each write would change the times in it, be seen, and lead to the next.
    "models.edgeai.io": (without("conditions.status"), "drops status.conditions"),
    # As Sedna's own have it.
    "models.sedna.io": (
        without("conditions.observedGeneration", "observedGeneration"),
        "drops status.conditions, status.observedGeneration",
    ),
    "datasets.edgeai.io": (demanding("legacy"), "refuses status fields"),
}


def older(crd: Crd) -> Crd:
    change, _ = OLDER.get(crd["metadata"]["name"], (lambda _version: None, ""))
    change(crd["spec"]["versions"][0])
    return crd


def test_crds_that_do_not_keep_a_status_are_told_and_objects_not_written_again_and_again(
    installed: ControlPlane, launch: Launch, namespace: str, tmp_path: Path
) -> None:
    """The rest works: it is ready, workers are made, and what edges report is not lost."""
    apply(installed, [older(each) for each in crds()])
    # Its writes are counted: those for what other tests left in theirs are not to be among them.
    manager = launch(installed.kubeconfig, "--namespace", namespace)
    manager.process.wait_until_ready()
    made = [installed.client.create(each) for each in one_of_each(namespace)]
    (job, *_) = made
    wait_for_deployment(installed, namespace)
    with connected_edge(manager, tmp_path) as edge:
        edge.report(WORKER, secret=secret_of(installed, job), seen=20, uploaded=2)
        for name, (_, words) in OLDER.items():
            manager.wait_for_reason(f"{name}: ", words, UPGRADE, ready=True)
            manager.wait_for_warning("cannot be written", words, f"{name}/{namespace}/")
        patches = manager.patches()
        assert len(versions(installed, path_of(made[2]))) <= 2
        assert manager.patches() - patches <= 1 + len(made)  # of each, and of the report
        assert len(manager.warnings()) == len(set(map(untimed, manager.warnings())))
        apply(installed, crds())
        wait_for_count(installed, job, 2)
    manager.wait_until_well()
    for each in made:
        assert installed.client.get(path_of(each))["status"]["conditions"][0]["observedGeneration"]


def one_of_each(namespace: str) -> Iterator[Object]:
    """A service in both groups, the first with an edge worker on edge0, and what it refers to."""
    yield service(namespace)
    yield {**service(namespace, name="sedna-digits"), "apiVersion": "sedna.io/v1alpha1"}
    for group in ("edgeai.io", "sedna.io"):
        yield from (model(each, namespace, group=group) for each in ("small", "big"))
    yield {
        "apiVersion": "edgeai.io/v1alpha1",
        "kind": "Dataset",
        "metadata": {"name": "pictures", "namespace": namespace},
        "spec": {"url": "/data/pictures.txt", "format": "txt", "nodeName": "edge0"},
    }


def versions(plane: ControlPlane, path: str) -> set[str]:
    """Those that the object has for some time."""
    found = set()
    until = time.monotonic() + WATCHED_S
    while time.monotonic() < until:
        found.add(plane.client.get(path)["metadata"]["resourceVersion"])
        time.sleep(0.1)
    return found


def secret_of(plane: ControlPlane, job: Object) -> str:
    path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/edgeai-worker-key"
    key = base64.b64decode(plane.client.get(path)["data"]["key"])
    return worker_secret(key, Uid(job["metadata"]["uid"]), "edge")


def wait_for_count(plane: ControlPlane, job: Object, uploaded: int) -> None:
    def check() -> bool:
        status = plane.client.get(path_of(job)).get("status", {})
        assert status.get("workers", {}).keys() == {WORKER}, f"status is {status}"
        assert status["uploadCount"] == uploaded, f"status is {status}"
        return True

    eventually(f"uploadCount {uploaded}", check)
