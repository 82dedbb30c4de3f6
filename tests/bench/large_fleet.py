"""Processor time of the steps of a fleet of 5,000 nodes. No server takes part.

Required: a plan 20 ms, also in a rollout; assignments with what sessions get 50; observing 25; a
report into a full slice 30.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, Final

from edgeai.api import slices
from globalmanager.contract import task_key
from globalmanager.edge.sessions.desired_sets import DesiredSets
from globalmanager.kinds.edge.jointinferenceservice import KIND
from tests.globalmanager.kinds.edge.jointinferenceservice.large_fleet import (
    large_fleet,
    mixed,
    observer_of,
    reports_of,
    rolled_out,
    serving,
    settled,
    slice_data,
)
from tests.support.world import NOW, merged, patch_of

_ROUNDS: Final = 25


def measure() -> dict[str, float]:
    """Milliseconds, medians."""
    fleet, broken = settled(large_fleet(serving)), settled(large_fleet(mixed))
    rollout = rolled_out()
    observer, desired, key = observer_of(fleet), DesiredSets(), task_key(fleet.ref)
    slice_ = slices.slice_names("digits")[0]
    config_map = {"metadata": {"name": slice_}, "data": slice_data(slice_, seen=1)}
    report = next(reports_of(slice_, seen=2))

    def write() -> None:
        part = slices.part_of(config_map)
        patch = patch_of(KIND.fold(part), report)
        slices.data_of(merged(part, patch), patch["workers"])

    return {
        "plan_ms": _ms(lambda: KIND.plan(fleet, NOW)),
        "plan_ms_with_broken_nodes": _ms(lambda: KIND.plan(broken, NOW)),
        "plan_ms_of_a_rollout": _ms(lambda: KIND.plan(rollout, NOW)),
        "assignments_ms": _ms(lambda: desired.assign(key, KIND.assignments(fleet))),
        "assignments_ms_of_a_rollout": _ms(lambda: desired.assign(key, KIND.assignments(rollout))),
        "observe_ms": _ms(lambda: observer.observe(fleet.ref)),
        "report_ms": _ms(write),
    }


def _ms(step: Callable[[], Any]) -> float:
    times = []
    for _ in range(_ROUNDS):
        began_s = time.process_time()
        step()
        times.append(1000 * (time.process_time() - began_s))
    return round(statistics.median(times), 1)
