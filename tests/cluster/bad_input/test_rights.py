"""Rights that the GlobalManager lacks: each is told, and granting what is told is enough."""

import base64
import http.client
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import pytest

from common import wire
from common.wire import AUDIENCE
from edgeai.cli.api import Object, path_of
from edgeai.kube.remedies import UPGRADE
from globalmanager.edge.door.server import SESSION_PATH
from tests.cluster.bad_input.unready import (
    OTHER,
    USER,
    Launch,
    UnreadyManager,
    connected_edge,
    create_job,
    leave_what_nobody_wants,
    untimed,
    wait_for_deployment,
    wait_for_image,
)
from tests.cluster.controlplane import ControlPlane
from tests.cluster.rights import Right, Rights, denied_in, granted
from tests.support.manager import SYSTEM_NAMESPACE
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def bound(plane: ControlPlane) -> Rights:
    rights = Rights(plane.client, USER)
    rights.bind()
    return rights


@pytest.fixture
def rights(plane: ControlPlane, bound: Rights) -> Rights:
    """Of USER: none."""
    plane.install_crds()
    plane.client.delete(f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/edgeai-worker-key")
    bound.grant(lambda _right: False)
    return bound


@pytest.fixture
def kubeconfig(plane: ControlPlane, tmp_path: Path) -> Path:
    """Of USER."""
    path = tmp_path / "kubeconfig"
    plane.write_kubeconfig(path, user=USER)
    return path


ALL_GRANTED_S: Final = 80.0  # one after another, each after a pause of the manager's
# PodGroups are watched only with a gang scheduler, and Workloads only when a job names one.
WATCHED: Final = {
    right
    for right in granted()
    if right.verb in ("list", "watch") and right.resource not in ("podgroups", "workloads")
}


def grant_denied(rights: Rights, held: set[Right], told: Iterable[str]) -> None:
    """As somebody who reads it: `held` grows by the rights that `told` asks for."""
    asked = {right for each in told if UPGRADE in each for right in denied_in(each)}
    if not asked <= held:
        held.update(asked)
        rights.grant(lambda right: right in held)


def test_who_grants_what_is_asked_for_gets_a_ready_manager(
    rights: Rights, kubeconfig: Path, launch: Launch
) -> None:
    """From none at all, one after another; the process is the same all the time."""
    manager = launch(kubeconfig)
    manager.wait_for_reason("get secrets", "403", UPGRADE)
    held: set[Right] = set()

    def check() -> bool:
        reasons = manager.words()
        grant_denied(rights, held, reasons)
        still = [str(each) for each in WATCHED - held]
        missing = [*still, *reasons]
        assert not missing, ", ".join(missing)
        return True

    eventually("readiness", check, timeout_s=ALL_GRANTED_S)
    assert held <= granted()
    manager.wait_until_well()
    warned = manager.warnings()
    assert len(warned) == len(set(map(untimed, warned))), warned


# What a job is begun with, beside WATCHED. (The key may have been there.)
BEGUN: Final = {
    *(Right("", "secrets", verb) for verb in ("get", "create")),
    *(Right("coordination.k8s.io", "leases", verb) for verb in ("get", "create", "update")),
    *(Right("", "configmaps", verb) for verb in ("get", "create")),
    *(Right(*what, "create") for what in (("apps", "deployments"), ("", "services"))),
    *(
        Right("edgeai.io", f"{what}/status", "patch")
        for what in ("jointinferenceservices", "models")
    ),
    Right("edgeai.io", "jointinferenceservices/finalizers", "update"),
    Right("", "events", "create"),
}
# What a change of it takes; all else is asked for only where two write at the same time, where a
# name is taken, or at the end.
CHANGED: Final = {Right("apps", "deployments", "update"), Right("", "services", "delete")}


def test_who_grants_what_is_asked_for_gets_a_job_that_runs(
    plane: ControlPlane,
    rights: Rights,
    kubeconfig: Path,
    launch: Launch,
    namespace: str,
    tmp_path: Path,
) -> None:
    """The lack of each right is told in a condition, by /readyz, or in the log; nothing ends."""
    held = set(WATCHED)
    rights.grant(lambda right: right in held)
    manager = launch(kubeconfig)
    job = create_job(plane, namespace)

    def grant_until(wanted: set[Right]) -> None:
        def check() -> bool:
            status = plane.client.get(path_of(job)).get("status", {})
            grant_denied(rights, held, [*manager.words(), *manager.warnings(), json.dumps(status)])
            assert held >= wanted, ", ".join(map(str, wanted - held))
            return True

        eventually("all rights to be asked for", check, timeout_s=ALL_GRANTED_S)
        assert held <= granted()

    with connected_edge(manager, tmp_path):
        grant_until(WATCHED | BEGUN)
        wait_for_deployment(plane, namespace)
        plane.client.patch(path_of(job), {"spec": {"cloudWorker": {"template": OTHER}}})
        leave_what_nobody_wants(plane, job)
        grant_until(WATCHED | BEGUN | CHANGED)
        wait_for_image(plane, namespace)
    manager.wait_until_well()


@pytest.fixture(scope="module")
def calm(
    plane: ControlPlane, bound: Rights, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[UnreadyManager]:
    """Ready, with all rights; edges show ServiceAccount tokens."""
    plane.install_crds()
    bound.grant()
    directory = tmp_path_factory.mktemp("calm")
    plane.write_kubeconfig(directory / "kubeconfig", user=USER)
    manager = UnreadyManager(directory / "kubeconfig", directory, ("--edge-auth", "serviceaccount"))
    try:
        manager.wait_until_well()
        yield manager
    finally:
        manager.stop()


TOLD_BY_READYZ: Final = {
    "watch of a job": Right("edgeai.io", "models", "watch"),
    "watch of what is owned": Right("apps", "deployments", "watch"),
    "renewal of the Lease": Right("coordination.k8s.io", "leases", "update"),
}


@pytest.mark.parametrize("right", TOLD_BY_READYZ.values(), ids=TOLD_BY_READYZ)
def test_a_right_that_is_taken_away_is_told_by_readyz_until_it_is_back(
    bound: Rights, calm: UnreadyManager, right: Right
) -> None:
    """What is known already is served on, so it stays ready."""
    since = len(calm.log())
    bound.grant_all_but(right)
    reason = calm.wait_for_reason(f"cannot {right.verb}", UPGRADE, ready=True)
    assert denied_in(reason) == {right}
    bound.grant()
    calm.wait_until_well()
    assert len(calm.warnings(since)) <= 3


def test_statuses_that_may_not_be_written_are_told_in_the_log(
    plane: ControlPlane, bound: Rights, calm: UnreadyManager, namespace: str
) -> None:
    since = len(calm.log())
    bound.grant_all_but(Right("edgeai.io", "jointinferenceservices/status", "patch"))
    job = create_job(plane, namespace)
    calm.wait_for_warning("not reconciled", f"{namespace}/digits", UPGRADE, since=since)
    wait_for_deployment(plane, namespace)
    bound.grant()
    wait_for_phase(plane, job)


def test_events_that_may_not_be_recorded_disturb_nothing(
    plane: ControlPlane, bound: Rights, calm: UnreadyManager, namespace: str
) -> None:
    since = len(calm.log())
    bound.grant(lambda right: right.resource != "events")
    wait_for_phase(plane, create_job(plane, namespace))
    wait_for_deployment(plane, namespace)
    calm.wait_for_warning("event dropped", namespace, UPGRADE, since=since)
    assert not [each for each in calm.warnings(since) if "event dropped" not in each]
    calm.wait_until_well()
    bound.grant()


def wait_for_phase(plane: ControlPlane, job: Object) -> None:
    eventually("a phase", lambda: plane.client.get(path_of(job)).get("status", {}).get("phase"))


def test_tokens_that_may_not_be_reviewed_are_told_and_their_nodes_come_again(
    bound: Rights, calm: UnreadyManager
) -> None:
    bound.grant_all_but(Right("authentication.k8s.io", "tokenreviews", "create"))
    since = len(calm.log())
    wait_for_answer(calm, 503)
    calm.wait_for_warning("cannot be authenticated", "tokenreviews", UPGRADE, since=since)
    bound.grant()
    wait_for_answer(calm, 401)


def wait_for_answer(manager: UnreadyManager, status: int) -> None:
    def check() -> bool:
        answered, text = knock(manager)
        assert answered == status, f"{answered} {text!r}"
        return True

    eventually(f"{status} for a token that nobody has issued", check, poll_s=1.0)


def knock(manager: UnreadyManager) -> tuple[int, bytes]:
    """Status and text of the answer to who comes with a token that nobody has issued."""
    connection = http.client.HTTPConnection(manager.process.edge_address, timeout=10)
    claims = {"aud": AUDIENCE, "sub": f"system:serviceaccount:{SYSTEM_NAMESPACE}:localcontroller"}
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    headers = {
        "Authorization": f"Bearer e30.{middle}.e30",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(),
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": wire.SUBPROTOCOL,
    }
    try:
        connection.request("GET", SESSION_PATH, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
