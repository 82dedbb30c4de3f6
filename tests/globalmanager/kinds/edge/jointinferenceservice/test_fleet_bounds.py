"""What is stored of a fleet of 5,000 nodes is bounded. `make bench` measures its time."""

from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from edgeai.api import slices
from edgeai.api.resources import Object
from globalmanager.contract import task_key
from globalmanager.edge.sessions.desired_sets import DesiredSets
from globalmanager.kinds.edge.jointinferenceservice import KIND
from globalmanager.kinds.shared.stored import stored_bytes
from tests.globalmanager.kinds.edge.jointinferenceservice.large_fleet import (
    NODES_OF_THE_FLEET,
    large_fleet,
    mixed,
    observer_of,
    rolled_out,
    serving,
    slice_data,
)
from tests.support.world import NOW

MAX_CONFIG_MAP_BYTES: Final = 1024 * 1024
MAX_STATUS_BYTES: Final = 64 * 1024


@pytest.mark.parametrize("state", [serving, mixed])
def test_the_status_of_a_large_fleet_is_small(state: Callable[[int], Object]) -> None:
    plan = KIND.plan(large_fleet(state), NOW)
    assert plan.status is not None
    assert stored_bytes(plan.status) < MAX_STATUS_BYTES
    assert {"key": "seen", "value": str(NODES_OF_THE_FLEET * 100_001)} in plan.status["metrics"]


def test_the_status_of_a_large_rollout_is_small() -> None:
    observed = rolled_out()
    assert stored_bytes(observed.object["status"]) < MAX_STATUS_BYTES
    assert observed.object["status"]["rollout"]["expected"] == NODES_OF_THE_FLEET // 2
    contents = [one.inputs for one in KIND.assignments(observed).values()]
    versions = Counter(one.number for each in contents for one in each.values() if one)
    assert versions == {1: NODES_OF_THE_FLEET // 2, 2: NODES_OF_THE_FLEET // 2}


def test_each_node_of_a_large_fleet_has_an_assignment() -> None:
    observed, desired = large_fleet(serving), DesiredSets()
    desired.assign(task_key(observed.ref), KIND.assignments(observed))
    assert len(desired.nodes) == NODES_OF_THE_FLEET


def test_a_large_fleet_is_observed_whole() -> None:
    fleet = large_fleet(serving)
    observed = observer_of(fleet).observe(fleet.ref)
    assert observed is not None
    assert len(observed.nodes) == len(observed.pods) == NODES_OF_THE_FLEET


def test_a_config_map_has_room_for_a_slice_of_a_large_fleet() -> None:
    name = slices.slice_names("digits")[0]
    config_map = {"metadata": {"name": name}, "data": slice_data(name, seen=1)}
    assert len(msgspec.json.encode(config_map)) < MAX_CONFIG_MAP_BYTES
