"""One resource that is nested too deep, or very large, on a real control plane: others live on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli.api import Object, path_of
from tests.cluster.controlplane import ControlPlane
from tests.cluster.edge import Edge
from tests.cluster.samples import create_models, service
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

NODE: Final = "edge0"
LEVELS: Final = 2000  # the API server takes up to 10,000
LARGE_BYTES: Final = 1_400_000  # etcd takes 1.5 MiB
SET_ASIDE: Final = "edgeai_objects_set_aside"
KEEP: Final = "x-kubernetes-preserve-unknown-fields"
JOBS: Final = "jointinferenceservices.edgeai.io"


@pytest.fixture
def manager(
    crds: ControlPlane, system_namespace: str, nodes: tuple[str, ...], tmp_path: Path
) -> Iterator[GlobalManager]:
    """The GlobalManager as a process, ready; it is restarted here."""
    manager = GlobalManager(
        kubeconfig=crds.kubeconfig,
        system_namespace=system_namespace,
        directory=tmp_path / "globalmanager",
    )
    with manager.running():
        yield manager


@pytest.fixture
def edge(manager: GlobalManager, tmp_path: Path) -> Iterator[Edge]:
    with Edge(NODE, port=manager.edge_port, directory=tmp_path).running() as edge:
        yield edge


@pytest.fixture
def models(client: Client, namespace: str) -> None:
    create_models(client, namespace)


def wait_for_task(edge: Edge, namespace: str, name: str) -> None:
    def check() -> bool:
        held = edge.tasks(namespace)
        assert name in held, f"it holds {held}"
        return True

    eventually(f"task {name} on the edge", check)


def deployments(client: Client, job: Object) -> dict[str, str]:
    """Name -> uid of those of the job."""
    namespace, uid = job["metadata"]["namespace"], job["metadata"]["uid"]
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments?labelSelector=edgeai.io/uid={uid}"
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in client.list(path)}


def wait_for_deployments(client: Client, job: Object) -> None:
    def check() -> bool:
        found = deployments(client, job)
        assert len(found) == 2, f"there are {sorted(found)}"
        return True

    eventually("the Deployments of both workers", check)


@pytest.fixture
def loose_definition(crds: ControlPlane) -> Iterator[None]:
    """One that keeps unknown fields of a template, as that of an older release does."""
    template = ("spec", "properties", "edgeWorker", "properties", "template")
    path = "/".join(("/spec/versions/0/schema/openAPIV3Schema/properties", *template, KEEP))
    patch_definition(crds, {"op": "add", "path": path, "value": True})
    yield
    patch_definition(crds, {"op": "remove", "path": path})


def patch_definition(control_plane: ControlPlane, operation: Object) -> None:
    done = control_plane.kubectl(
        *("patch", "customresourcedefinition", JOBS, "--type", "json"),
        *("--patch", json.dumps([operation])),
    )
    assert done.returncode == 0, done.stderr


def keeps_unknown_fields(client: Client, job: Object) -> bool:
    patch = {"spec": {"edgeWorker": {"template": {"y": "z"}}}}
    return "y" in client.patch(path_of(job), patch)["spec"]["edgeWorker"]["template"]


def deepen(control_plane: ControlPlane, job: Object) -> None:
    """Nest an unknown field of the edge worker's template too deep."""
    eventually("the definition", lambda: keeps_unknown_fields(control_plane.client, job))
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

    def check() -> bool:
        is_ready, reasons = manager.readyz()
        assert is_ready, f"not ready: {reasons}"
        assert any(name in reason for reason in reasons), f"/readyz says {reasons}"
        return True

    eventually(f"{name} to be set aside", check)
    eventually(f"an Event on {name}", lambda: warnings(client, job))


@pytest.mark.usefixtures("models", "loose_definition")
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

    def check() -> bool:
        is_ready, reasons = manager.readyz()
        told = [reason for reason in reasons if namespace in reason]
        is_clean = is_ready and not told and not any(manager.metric(SET_ASIDE).values())
        assert is_clean, f"/readyz says {reasons}"
        return True

    eventually("nothing to be set aside", check)
