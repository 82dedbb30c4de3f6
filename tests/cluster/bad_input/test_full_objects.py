"""A job that fills what etcd stores of one object, so that its .status has no room."""

import json
from typing import Final

from edgeai.cli.api import ApiError, Object, path_of
from tests.bench.samples import service
from tests.cluster.bad_input.unready import Launch, UnreadyManager
from tests.cluster.controlplane import ControlPlane
from tests.support.waiting import eventually

ETCD_BYTES: Final = 1536 * 1024  # largest request that etcd takes
STEP_BYTES: Final = 64


def job(namespace: str, padding: int) -> Object:
    made = service(0, namespace, "edge0")
    container = {"name": "worker", "image": "none", "args": ["x" * padding]}
    made["spec"]["edgeWorker"]["template"] = {"spec": {"containers": [container]}}
    return made


def create_largest(plane: ControlPlane, namespace: str) -> Object:
    """The largest job that etcd takes, to within STEP_BYTES."""
    padding = ETCD_BYTES
    while True:
        try:
            return plane.client.create(job(namespace, padding))
        except ApiError as error:
            if "request is too large" not in str(error):
                raise
            padding -= STEP_BYTES


def event_of(plane: ControlPlane, made: Object) -> Object:
    namespace, uid = made["metadata"]["namespace"], made["metadata"]["uid"]

    def check() -> Object:
        told = plane.client.list(f"/api/v1/namespaces/{namespace}/events")
        reasons = [event["reason"] for event in told if event["involvedObject"]["uid"] == uid]
        assert reasons == ["TooLarge"], f"Events: {reasons}"
        return told[0]

    return eventually("an Event about the job", check)


def wait_for_condition(plane: ControlPlane, made: Object) -> None:
    def check() -> bool:
        status = plane.client.get(path_of(made)).get("status", {})
        assert status.get("conditions"), f"status is {status}"
        return True

    eventually("a condition", check)


def test_a_job_without_room_for_its_status_is_told_once_by_an_event(
    plane: ControlPlane, launch: Launch, namespace: str
) -> None:
    plane.install_crds()
    manager: UnreadyManager = launch(plane.kubeconfig, "--namespace", namespace)
    manager.process.wait_until_ready()
    made = create_largest(plane, namespace)
    assert len(json.dumps(made)) > 1_500_000
    event = event_of(plane, made)
    assert (event["type"], event["involvedObject"]["name"]) == ("Warning", "bench-0")
    assert "make the spec smaller" in event["message"]
    # Another job is served meanwhile, and the large one is not tried again and again.
    patches = manager.patches()
    wait_for_condition(plane, plane.client.create(service(1, namespace, "edge0")))
    assert manager.patches() <= patches + 4
    smaller = job(namespace, 1000)["spec"]
    plane.client.patch(path_of(made), {"spec": smaller})
    wait_for_condition(plane, made)
