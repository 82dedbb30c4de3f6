"""One resource that is nested too deep, or very large, on a real control plane: others live on."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from edgeai.api import Object, wait_until
from tests.cluster.client import Client
from tests.cluster.controlplane import ControlPlane
from tests.cluster.edge import Edge
from tests.cluster.manager import GlobalManager
from tests.cluster.samples import model, service

NODE: Final = "edge0"
TOKEN: Final = "secret-of-edge0"
LEVELS: Final = 2000  # the API server takes up to 10,000
LARGE_BYTES: Final = 1_400_000  # etcd takes 1.5 MiB
SETTLE_S: Final = 60.0
SET_ASIDE: Final = "edgeai_objects_set_aside"
JOBS: Final = "jointinferenceservices.edgeai.io"


@pytest.fixture
def manager(
    crds: ControlPlane, system_namespace: str, nodes: tuple[str, ...], tmp_path: Path
) -> Iterator[GlobalManager]:
    """The GlobalManager as a process, ready; it is restarted here."""
    directory = tmp_path / "globalmanager"
    directory.mkdir()
    manager = GlobalManager(
        kubeconfig=crds.kubeconfig,
        system_namespace=system_namespace,
        directory=directory,
        tokens={NODE: TOKEN},
    )
    try:
        manager.start()
        yield manager
    finally:
        manager.stop()


@pytest.fixture
def edge(manager: GlobalManager, tmp_path: Path) -> Iterator[Edge]:
    port = int(manager.edge_address.rpartition(":")[2])
    edge = Edge(NODE, token=TOKEN, port=port, directory=tmp_path)
    edge.start()
    try:
        yield edge
    finally:
        edge.stop(signal.SIGKILL)


@pytest.fixture
def models(client: Client, namespace: str) -> None:
    for name in ("small", "big"):
        client.create(model(name, namespace))


def wait_for_task(edge: Edge, namespace: str, name: str) -> None:
    wait_until(
        f"task {name} on the edge",
        lambda: "" if name in edge.tasks(namespace) else f"it holds {edge.tasks(namespace)}",
        timeout_s=SETTLE_S,
    )


def deployments(client: Client, job: Object) -> dict[str, str]:
    """Name -> uid of those of the job."""
    namespace, uid = job["metadata"]["namespace"], job["metadata"]["uid"]
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments?labelSelector=edgeai.io/uid={uid}"
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in client.list(path)}


def wait_for_deployments(client: Client, job: Object) -> None:
    def missing() -> str:
        found = deployments(client, job)
        return "" if len(found) == 2 else f"there are {sorted(found)}"

    wait_until("the Deployments of both workers", missing, timeout_s=SETTLE_S)


def deepen(control_plane: ControlPlane, job: Object) -> None:
    """Nest the edge worker's template, whose unknown fields are preserved, too deep."""
    # Lists: an API server of Kubernetes 1.20 needs minutes to note who manages so deep an object.
    nested = "[" * LEVELS + "]" * LEVELS
    patch = '{"spec":{"edgeWorker":{"template":{"x":' + nested + "}}}}"
    metadata = job["metadata"]
    patched = control_plane.kubectl(
        *("patch", JOBS, metadata["name"], "--namespace", metadata["namespace"]),
        *("--type", "merge", "--output", "name", "--patch-file", "/dev/stdin"),
        documents=patch,
    )
    assert patched.returncode == 0, patched.stderr


def warnings(client: Client, job: Object) -> list[Object]:
    namespace = job["metadata"]["namespace"]
    events = client.list(f"/api/v1/namespaces/{namespace}/events")
    uid = job["metadata"]["uid"]
    of_job = [each for each in events if each["involvedObject"].get("uid") == uid]
    return [each for each in of_job if each["reason"] == "Unreadable"]


def wait_until_set_aside(client: Client, manager: GlobalManager, job: Object) -> None:
    name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"

    def missing() -> str:
        is_ready, reasons = manager.readyz()
        if not is_ready:
            return f"not ready: {reasons}"
        return "" if any(name in reason for reason in reasons) else f"/readyz says {reasons}"

    wait_until(f"{name} to be set aside", missing, timeout_s=SETTLE_S)
    wait_until(
        f"an Event on {name}",
        lambda: "" if warnings(client, job) else "there is none",
        timeout_s=SETTLE_S,
    )


@pytest.mark.usefixtures("models")
def test_what_cannot_be_read_or_is_large_is_nobody_elses_trouble(
    crds: ControlPlane, client: Client, manager: GlobalManager, edge: Edge, namespace: str
) -> None:
    running = client.create(service(namespace, name="running"))
    wait_for_deployments(client, running)
    wait_for_task(edge, namespace, "running")
    before = deployments(client, running)

    waiting = service(namespace, name="deep")
    waiting["spec"]["edgeWorker"]["model"]["name"] = "none-yet"
    deep = client.create(waiting)
    deepen(crds, deep)
    deepen(crds, running)
    large = service(namespace, name="large")
    large["spec"]["edgeWorker"]["template"]["x"] = "x" * LARGE_BYTES
    large = client.create(large)

    # Others go on, and so do the workers of the one that was readable once.
    wait_until_set_aside(client, manager, deep)
    wait_until_set_aside(client, manager, running)
    healthy = client.create(service(namespace, name="healthy"))
    wait_for_deployments(client, healthy)
    wait_for_deployments(client, large)
    for name in ("healthy", "large"):
        wait_for_task(edge, namespace, name)
    assert "running" in edge.tasks(namespace)
    [told] = warnings(client, deep)
    assert told["type"] == "Warning"
    assert "spec.edgeWorker.template.x…" in told["message"]
    assert manager.metric(SET_ASIDE)[f'{{resource="{JOBS}",selector=""}}'] == 2

    # Likewise after a restart.
    manager.stop()
    manager.start()
    wait_until_set_aside(client, manager, deep)
    late = client.create(service(namespace, name="late"))
    wait_for_deployments(client, late)
    wait_for_task(edge, namespace, "late")
    assert deployments(client, running) == before

    # Put right, it goes on; deleted, it leaves nothing behind.
    patched = crds.kubectl(
        *("patch", JOBS, "running", "--namespace", namespace, "--type", "merge"),
        *("--patch-file", "/dev/stdin"),
        documents='{"spec":{"edgeWorker":{"template":{"x":null}}}}',
    )
    assert patched.returncode == 0, patched.stderr
    wait_for_task(edge, namespace, "running")
    assert deployments(client, running) == before
    crds.kubectl("delete", JOBS, "deep", "--namespace", namespace)

    def left() -> str:
        is_ready, reasons = manager.readyz()
        told = [reason for reason in reasons if namespace in reason]
        is_clean = is_ready and not told and not any(manager.metric(SET_ASIDE).values())
        return "" if is_clean else f"/readyz says {reasons}"

    wait_until("nothing to be set aside", left, timeout_s=SETTLE_S)
