"""When a round closes, by tables: moments in seconds, no clock."""

from typing import Any

import pytest

from edgeai.errors import SettingsError
from edgeai.worker.federated.rounds import SEED, Rounds, RoundSettings

SETTINGS = RoundSettings(
    rounds=3, expected_participants=3, min_participants=2, deadline_s=100.0, gone_after_s=10.0
)


def rounds(*steps: str, settings: RoundSettings = SETTINGS, number: int = 1) -> Rounds:
    """Steps like "a joins 0", "a sends 5 at 3", "a heard 9", "a leaves", "round 2 at 7"."""
    made = Rounds(settings, now_s=0.0, number=number)
    for step in steps:
        match step.split():
            case [name, "joins", at]:
                made.join(name, float(at))
            case [name, "sends", samples, "at", at]:
                made.note_update(name, int(samples), float(at))
            case [name, "heard", at]:
                assert made.note_beat(name, float(at))
            case [name, "leaves"]:
                made.leave(name)
            case ["round", number_, "at", at]:
                made.begin(int(number_), float(at))
            case _:
                raise AssertionError(step)
    return made


ALL_JOIN = ("a joins 0", "b joins 0", "c joins 0")
ALL_SEND = ("a sends 1 at 1", "b sends 1 at 1", "c sends 1 at 1")


@pytest.mark.parametrize(
    ("steps", "now_s", "closes"),
    [
        pytest.param(ALL_JOIN, 1, False, id="nobody has sent"),
        pytest.param((*ALL_JOIN, *ALL_SEND), 1, True, id="all have sent"),
        pytest.param((*ALL_JOIN, *ALL_SEND[:2]), 1, False, id="one is awaited"),
        pytest.param((*ALL_JOIN, *ALL_SEND[:2], "c leaves"), 1, True, id="it left"),
        pytest.param((*ALL_JOIN, *ALL_SEND[:2]), 10, True, id="it is silent too long"),
        pytest.param((*ALL_JOIN, *ALL_SEND[:2], "c heard 9"), 10, False, id="it was heard"),
        pytest.param(
            (*ALL_JOIN, *ALL_SEND[:2], "c heard 99"), 100, True, id="it is too slow: the deadline"
        ),
        pytest.param(
            (*ALL_JOIN, ALL_SEND[0], "b sends 0 at 1"), 200, False, id="too few have samples"
        ),
        pytest.param(
            ("a joins 0", "b joins 0", *ALL_SEND[:2]), 5, False, id="the third has never come"
        ),
        pytest.param(
            ("a joins 0", "b joins 0", *ALL_SEND[:2]), 100, True, id="it does not come in time"
        ),
        pytest.param(
            ("a joins 0", "b joins 11", "c joins 11", "b sends 1 at 12", "c sends 1 at 12"),
            12,
            False,
            id="one has gone before the third came",
        ),
        pytest.param(
            ("a joins 0", "b joins 50", "a heard 50", *ALL_SEND[:2]),
            100,
            False,
            id="the deadline runs from when enough were there",
        ),
        pytest.param(
            (*ALL_JOIN, *ALL_SEND, "round 2 at 2"), 2, False, id="a new round begins empty"
        ),
        pytest.param(
            (*ALL_JOIN, *ALL_SEND, "round 2 at 2", "a sends 1 at 3", "b sends 1 at 3", "c leaves"),
            3,
            True,
            id="after the first round nobody is expected who is not there",
        ),
        pytest.param(
            (
                *(*ALL_JOIN, *ALL_SEND, "round 2 at 90"),
                *("a sends 1 at 91", "b sends 1 at 91", "c heard 99"),
            ),
            105,
            False,
            id="a new round has a deadline of its own",
        ),
        pytest.param(
            ("a sends 1 at 0", "b sends 1 at 0", "c joins 5", "c sends 1 at 5"),
            5,
            True,
            id="who had sent before a restart was there",
        ),
        pytest.param(
            (*ALL_JOIN, *ALL_SEND, "d joins 1"), 1, False, id="who joins meanwhile takes part"
        ),
    ],
)
def test_a_round_closes(steps: Any, now_s: float, *, closes: bool) -> None:
    assert rounds(*steps).can_close(now_s) is closes


def test_without_a_model_no_round_closes() -> None:
    assert not rounds(*ALL_JOIN, *ALL_SEND, number=SEED).can_close(1)


def test_a_restarted_aggregator_waits_a_while_for_those_it_has_forgotten() -> None:
    resumed = rounds("a sends 1 at 0", "b sends 1 at 0", number=2)
    assert not resumed.can_close(9)
    assert resumed.can_close(10)
    resumed.join("c", 9)
    assert not resumed.can_close(10)


def test_the_seed_comes_from_the_first_who_is_present() -> None:
    assert rounds(number=SEED).seeder(0) == ""
    started = rounds("a joins 0", "b joins 1", number=SEED)
    assert started.seeder(5) == "a"
    assert started.seeder(10.5) == "b"
    started.leave("a")
    assert started.seeder(5) == "b"


def test_who_has_not_joined_is_not_heard() -> None:
    assert not rounds().note_beat("a", 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rounds", 0),
        ("expected_participants", 0),
        ("min_participants", 0),
        ("min_participants", 2),  # of one who is expected
        ("deadline_s", 0.0),
        ("gone_after_s", float("inf")),
    ],
)
def test_a_setting_out_of_range_is_named(field: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=field):
        RoundSettings(**{field: value})


@pytest.mark.parametrize(
    ("steps", "number", "says"),
    [
        pytest.param(ALL_JOIN, 1, "", id="the present are to send"),
        pytest.param((*ALL_JOIN, *ALL_SEND), 1, "", id="it can close"),
        pytest.param((), SEED, "0 participants are present", id="nobody has come"),
        pytest.param(
            ("a joins 0", "b joins 0", *ALL_SEND[:2]), 1, "2 participants", id="one has not come"
        ),
        pytest.param(
            (*ALL_JOIN, "a sends 0 at 1", "b sends 0 at 1", "c sends 4 at 1"),
            1,
            "1 sent an update with samples; expected are 3, at least 2",
            id="too few have samples",
        ),
    ],
)
def test_a_round_that_cannot_close_says_why(steps: Any, number: int, says: str) -> None:
    lack = rounds(*steps, number=number).obstacle(2.0)
    assert says in lack
    assert bool(lack) is bool(says)
