"""No control character of a container or a node reaches a status or an Event."""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from globalmanager.contract import Plan
from globalmanager.kinds.training import pytorchjob
from tests.globalmanager.kinds.edge.samples import federated_job, small_service
from tests.globalmanager.kinds.training.samples import pytorch_spec, started
from tests.support.world import World, report

ESCAPE: Final = "\x1b]0;owned\x07\x1b[2J\u202e"
ENDED: Final[dict[str, Any]] = {
    "containerStatuses": [
        {
            "name": "main",
            "state": {"terminated": {"exitCode": 1, "reason": "Error", "message": f"a{ESCAPE}b"}},
        }
    ],
    "message": f"evicted{ESCAPE}",
}


def service() -> World:
    world = small_service().settle()
    return world.pod("edge", "edge0", worker="digits-edge", **ENDED)


def federation() -> World:
    return federated_job().settle().pods_become("Running", **ENDED)


def training() -> World:
    return started(pytorchjob.KIND, pytorch_spec(1)).pods_become("Failed", **ENDED)


def assert_harmless(*texts: object) -> None:
    shown = json.dumps(texts, ensure_ascii=False, default=str)
    assert "]0;owned" in shown, "the message is not there at all"
    assert not [each for each in json.dumps(texts, default=str).split("\\u") if each[:4] == "001b"]
    assert "\u202e" not in shown
    assert "\x07" not in shown


@pytest.mark.parametrize("make", [service, federation, training])
def test_the_message_of_a_container_is_shown_without_control_characters(
    make: Callable[[], World],
) -> None:
    plan: Plan = make().plan()
    assert_harmless(plan.status, [each.message for each in plan.events])


def test_the_report_of_a_worker_is_stored_without_control_characters() -> None:
    world = small_service().settle()
    told = report(reason=f"x{ESCAPE}", details={f"k{ESCAPE}": f"v{ESCAPE}"}, observed_at=ESCAPE)
    assert_harmless(world.receive(told))
