"""The lists of hosts of an elastic job: what Horovod reads never stops it, and ends as wanted."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from globalmanager.kinds.elastic.trainingjob.hosts import READ_S, HostList, next_list
from tests.support.world import at

LONG_AGO: Final = at(-1000)


def hosts(text: str) -> tuple[str, ...]:
    """ "0 2" -> the hosts of the workers 0 and 2"""
    return tuple(f"mnist-worker-{index}" for index in text.split())


def listed(text: str, *, came_s: float | None = None, went_s: float | None = None) -> HostList:
    came = None if came_s is None else at(came_s)
    went = None if went_s is None else at(went_s)
    return HostList(hosts=hosts(text), came=came, went=went)


@pytest.mark.parametrize(
    ("before", "wanted", "ready", "after", "wait_s"),
    [
        pytest.param(listed(""), "0 1", "0 1", "0 1", None, id="the first hosts"),
        pytest.param(listed(""), "0 1", "", "", None, id="no host is ready yet"),
        pytest.param(listed("0 1"), "0 1", "0 1", "0 1", None, id="as wanted"),
        pytest.param(listed("0 1"), "0 1", "0", "0 1", None, id="a wanted host is not ready"),
        pytest.param(listed("0 1"), "0 1 2 3", "0 1 2 3", "0 1 2 3", None, id="two hosts more"),
        pytest.param(listed("0 1"), "0 1 2 3", "0 1 3", "0 1 3", None, id="one of them is ready"),
        pytest.param(listed("0 1 2"), "0 1", "0 1 2", "0 1", None, id="one host less"),
        pytest.param(listed("0 1 10"), "0 10", "0 1 10", "0 10", None, id="worker 1, not 10"),
        pytest.param(listed("0 1"), "0 2", "0 2", "0", READ_S, id="a replaced host goes first"),
        pytest.param(listed("0 1"), "0 2", "0", "0", None, id="its successor is not ready"),
        pytest.param(listed("0 1"), "2", "2", "0 1 2", READ_S, id="all hosts are replaced"),
        pytest.param(listed("0 1"), "2", "0 1", "0 1", None, id="no successor is ready"),
        pytest.param(listed("0 1"), "", "", "0 1", None, id="no host is wanted"),
        pytest.param(listed("0", went_s=-4), "0 2", "0 2", "0", READ_S - 4, id="went just now"),
        pytest.param(listed("0", went_s=-READ_S), "0 2", "0 2", "0 2", None, id="went, and read"),
        pytest.param(listed("0 1", went_s=-4), "0", "0", "0", None, id="another one goes"),
        pytest.param(
            listed("0 1", came_s=-4), "0 1 2", "0 1 2", "0 1 2", None, id="one more comes"
        ),
        pytest.param(listed("0 2", came_s=-4), "2", "2", "0 2", READ_S - 4, id="came just now"),
        pytest.param(listed("0 2", came_s=-READ_S), "2", "2", "2", None, id="came, and read"),
        pytest.param(
            listed("0 1", came_s=-4),
            "0 2",
            "0 2",
            "0 1",
            READ_S - 4,
            id="to replace after one came",
        ),
        pytest.param(
            listed("0 1", came_s=500), "0", "0", "0 1", READ_S, id="the clock was set back"
        ),
    ],
)
def test_the_next_list(
    before: HostList, wanted: str, ready: str, after: str, wait_s: float | None
) -> None:
    found = next_list(
        before, desired=hosts(wanted), ready=hosts(ready), has_launcher=True, now=at(0)
    )
    assert (found.list.hosts, found.wait_s) == (hosts(after), wait_s)


@pytest.mark.parametrize("before", ["", "0 1", "5"])
def test_without_a_launcher_the_list_is_what_is_usable(before: str) -> None:
    """A launcher that starts has read no list before, so no list can stop it."""
    recent = listed(before, came_s=-1, went_s=-1)
    found = next_list(
        recent, desired=hosts("2 3 4"), ready=hosts("2 4"), has_launcher=False, now=at(0)
    )
    assert found.list == HostList(hosts=hosts("2 4"))
    assert found.wait_s is None


# ---- any schedule --------------------------------------------------------------------------------

INDICES: Final = st.sets(st.integers(0, 6))
STEP: Final = st.tuples(INDICES, INDICES, st.booleans(), st.integers(0, 12))
"""Wanted and ready indices, whether the launcher reads afterwards, seconds until the next step."""
Step = tuple[set[int], set[int], bool, int]


def names(indices: set[int]) -> tuple[str, ...]:
    return tuple(f"worker-{index}" for index in sorted(indices))


def reads(steps: Sequence[Step]) -> Iterator[tuple[str, ...]]:
    """The lists that the launcher reads: at any time, and each list that stands for READ_S."""
    now, list_ = at(0), HostList(hosts=names({0, 1}))
    changed, is_read = LONG_AGO, False
    for wanted, ready, reads_now, pause_s in steps:
        found = next_list(
            list_, desired=names(wanted), ready=names(ready), has_launcher=True, now=now
        ).list
        if found.hosts != list_.hosts:
            if not is_read and now - changed >= timedelta(seconds=READ_S):
                yield list_.hosts
            changed, is_read = now, False
        list_ = found
        if reads_now:
            is_read = True
            yield list_.hosts
        now += timedelta(seconds=pause_s)


@given(st.lists(STEP, max_size=40))
def test_horovod_never_reads_a_list_that_stops_it(steps: list[Step]) -> None:
    known: set[str] = set(names({0, 1}))
    for read in map(set, reads(steps)):
        assert read & known, f"{read} has no host of {known}"
        assert not (read - known and known - read), f"from {known} to {read} hosts come and go"
        known = read


@given(st.lists(STEP, max_size=20), st.sets(st.integers(0, 6), min_size=1))
def test_the_list_comes_to_the_wanted_hosts_by_its_own_timers(
    steps: list[Step], last: set[int]
) -> None:
    now, list_ = at(0), HostList(hosts=names({0, 1}))
    for wanted, ready, _, pause_s in steps:
        list_ = next_list(
            list_, desired=names(wanted), ready=names(ready), has_launcher=True, now=now
        ).list
        now += timedelta(seconds=pause_s)
    assert set(settled(list_, names(last), now)) == set(names(last))


def settled(list_: HostList, wanted: Sequence[str], now: datetime) -> tuple[str, ...]:
    for _ in range(6):
        found = next_list(list_, desired=wanted, ready=wanted, has_launcher=True, now=now)
        list_ = found.list
        if found.wait_s is None:
            return list_.hosts
        now += timedelta(seconds=found.wait_s)
    raise AssertionError(f"still a timer after six steps: {list_}")
