"""The soak tells a run that breaks a bound from one that breaks none."""

import os
from typing import Any, Final

import pytest

from tests.soak.load import WRONG
from tests.soak.samples import Sample, Samples
from tests.soak.verdict import broken

GROWTH: Final = {"kib_per_minute": 19.0, "open_files_more": 2}
GOOD: Final[dict[str, Any]] = {
    **dict.fromkeys(WRONG, 0),
    "children_left": 0,
    **dict.fromkeys(("created", "exact", "deleted"), 7),
    "takeover_s": [15.2, 16.5],
    "second_half": dict.fromkeys(("east", "middle", "edges"), GROWTH),
}
BAD: Final[dict[str, dict[str, Any]]] = {
    **{name: {name: 1} for name in (*WRONG, "children_left")},
    "a job is not gone": {"deleted": 6},
    "a late takeover": {"takeover_s": [15.2, 17.0]},
    "memory": {"second_half": {**GOOD["second_half"], "east": {**GROWTH, "kib_per_minute": 21}}},
    "files": {"second_half": {**GOOD["second_half"], "edges": {**GROWTH, "open_files_more": 3}}},
    "only one replica lived": {"second_half": {"east": GROWTH, "edges": GROWTH}},
}


def test_a_good_run_breaks_nothing() -> None:
    assert broken(GOOD) == []


@pytest.mark.parametrize("changed", BAD.values(), ids=BAD)
def test_each_bound_is_checked(changed: dict[str, Any]) -> None:
    assert len(broken(GOOD | changed)) == 1


def test_growth_is_that_of_processes_that_live_through_the_time() -> None:
    taken = Samples()
    taken.take("now", os.getpid())  # which lives too short to say anything
    for name, begin in (("whole", 0), ("late", 30)):
        taken._of[name, 1] = [
            Sample(float(at), 1000.0 + at * 0.5, files=10 + at // 50, objects=300 + at)
            for at in range(begin, 101, 5)
        ]
    taken._of["whole", 1][7] = Sample(35.0, 9000.0, 10, objects=335)  # a moment of much work
    growth = taken.growth(since_s=10.0, until_s=100.0)
    assert list(growth) == ["whole"]
    assert growth["whole"]["kib_per_minute"] == pytest.approx(30.0, abs=0.5)
    assert growth["whole"]["open_files_more"] == 1
    assert growth["whole"]["objects_more"] == 48
