"""A Service that names a job of another namespace as its controller; nobody collects it here."""

from edgeai.cli.api import path_of
from tests.cluster.bad_input.unready import (
    Launch,
    create_job,
    leave_what_nobody_wants,
    wait_for_deployment,
)
from tests.cluster.controlplane import ControlPlane
from tests.support.waiting import eventually


def test_the_service_of_another_namespace_is_left_alone(
    plane: ControlPlane, launch: Launch, namespace: str
) -> None:
    """The job's own one, made after it, is deleted."""
    plane.install_crds()
    manager = launch(plane.kubeconfig)
    manager.wait_until_well()
    job = create_job(plane, namespace)
    wait_for_deployment(plane, namespace)
    foreign = leave_what_nobody_wants(plane, job, namespace="default")
    own = leave_what_nobody_wants(plane, job)
    eventually("the end of what nobody wants", lambda: plane.client.find(path_of(own)) is None)
    left = plane.client.get(path_of(foreign))
    assert left["metadata"]["uid"] == foreign["metadata"]["uid"]
    assert left["metadata"]["resourceVersion"] == foreign["metadata"]["resourceVersion"]
