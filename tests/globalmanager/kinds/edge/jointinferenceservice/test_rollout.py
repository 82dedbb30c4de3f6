"""A rollout in waves: when a wave begins, what stops a version, and who gets which version."""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import pytest

from edgeai.api.rollouts import Guard, Phase, Promotion, Rollout, RolloutStatus
from edgeai.ids import NodeName
from globalmanager.kinds.edge.jointinferenceservice.rollout import (
    Figures,
    Member,
    decide,
    place_of,
    version_of,
)
from globalmanager.kinds.shared.stored import stored_bytes
from tests.support.world import at

GUARD: Final = Guard(metric="hard", operator="<", threshold=0.5, min_samples=10, window_s=60)
WAVES: Final = ["1", "10%", "50%"]


class Field:
    """A fleet whose nodes serve what they should, and the stored state of its rollout."""

    def __init__(self, number: int = 20, **rollout: Any) -> None:
        self.rollout = Rollout(**{"waves": WAVES, **rollout})
        self.state: RolloutStatus | None = None
        self.nodes = {
            NodeName(f"edge{n}"): Member(NodeName(f"edge{n}"), {}, True, "") for n in range(number)
        }
        self.figures = Figures()
        self.second = 0.0
        self.version = "v1"
        self.settle()

    def settle(self) -> "Field":
        """Decide, and let the nodes in contact serve what they should, until nothing changes."""
        for _ in range(20):
            before = (self.state, dict(self.nodes))
            self.step()
            self.serve()
            if before == (self.state, self.nodes):
                return self
        raise AssertionError("the rollout does not settle")

    def step(self) -> float | None:
        members = list(self.nodes.values())
        decision = decide(
            self.rollout, self.state, self.version, members, self.figures, at(self.second)
        )
        self.state = decision.state
        return decision.check_in_s

    def serve(self) -> None:
        for node, member in self.nodes.items():
            if member.is_connected and not member.has_failed:
                self.nodes[node] = member._replace(version=self.desired()[node])

    def publish(self, version: str) -> "Field":
        self.version = version
        return self.settle()

    def edit(self, **fields: Any) -> "Field":
        self.rollout = msgspec.structs.replace(self.rollout, **fields)
        return self.settle()

    def change(self, *nodes: str, **fields: Any) -> "Field":
        for node in map(NodeName, nodes):
            self.nodes[node] = self.nodes[node]._replace(**fields)
        return self

    def wait(self, seconds: float) -> "Field":
        self.second += seconds
        return self.settle()

    def count(self, seen: int, hard: int) -> "Field":
        self.figures = Figures(self.figures.seen + seen, self.figures.hits + hard)
        return self.settle()

    def desired(self) -> Mapping[NodeName, str]:
        assert self.state is not None
        return {
            node: version_of(self.rollout, self.state, member)
            for node, member in self.nodes.items()
        }

    def number(self, version: str) -> int:
        """How many nodes should serve the version."""
        return list(self.desired().values()).count(version)

    def first(self, version: str, number: int = 1) -> list[NodeName]:
        """The nodes that get the version first."""
        return sorted(self.nodes, key=lambda node: place_of(node, version))[:number]

    @property
    def summary(self) -> tuple[Phase, int, int]:
        """Phase, wave, and how many nodes should serve the present version."""
        assert self.state is not None
        return self.state.phase, self.state.wave, self.number(self.version)


# ---- waves --------------------------------------------------------------------------------------


def test_the_first_version_goes_to_all_nodes_at_once() -> None:
    assert Field().summary == (Phase.COMPLETE, 0, 20)


def test_waves_follow_each_other_after_their_pause() -> None:
    field = Field(pause_s=60).publish("v2")
    course = [field.summary]
    for _ in range(4):
        course.append(field.wait(60).summary)
    assert course == [
        (Phase.PROGRESSING, 1, 1),
        (Phase.PROGRESSING, 2, 2),
        (Phase.PROGRESSING, 3, 10),
        (Phase.PROGRESSING, 4, 20),
        (Phase.COMPLETE, 0, 20),
    ]
    assert set(field.desired().values()) == {"v2"}


def test_a_pause_is_told_as_the_time_of_the_next_decision() -> None:
    field = Field(pause_s=60).publish("v2")
    field.second += 20
    assert field.step() == 40


@pytest.mark.parametrize(
    ("waves", "sizes"),
    [
        (["1", "10%", "50%", "100%"], [1, 2, 10]),
        (["5", "3", "7"], [5, 5, 7]),
        (["100"], [20]),
        (["1%"], [1]),
        (["hall=north", "50%"], [4, 10]),
        (["hall=nowhere", "1"], [0, 1]),
        (["hall=north,line=2"], [2]),
    ],
)
def test_sizes_of_waves(waves: list[str], sizes: list[int]) -> None:
    """Of those before the last, which is all nodes."""
    field = Field(waves=waves, promote="manual")
    for number, node in enumerate(field.first("v2", 4)):
        field.change(node, labels={"hall": "north", "line": str(number // 2 + 1)})
    field.publish("v2")
    seen = []
    for wave in range(1, 10):
        field.edit(promoted=Promotion(version="v2", wave=wave))
        if field.state is None or field.state.phase is Phase.COMPLETE:
            break
        seen.append(field.number("v2"))
    assert seen == sizes


def test_nodes_that_come_get_the_version_of_their_place() -> None:
    field = Field(promote="manual", waves=["50%"]).publish("v2")
    state = field.state
    for number in range(100):
        node = NodeName(f"new{number}")
        field.nodes[node] = Member(node, {}, True, "")
    field.settle()
    assert field.state == state
    assert 30 < field.number("v2") < 90
    before = {node for node, version in field.desired().items() if version == "v2"}
    field.edit(promoted=Promotion(version="v2", wave=2))
    assert before <= {node for node, version in field.desired().items() if version == "v2"}


def test_a_node_that_loses_the_label_of_its_wave_keeps_the_version() -> None:
    field = Field(waves=["hall=north"], promote="manual")
    field.change("edge3", labels={"hall": "north"}).publish("v2")
    assert field.desired()[NodeName("edge3")] == "v2"
    field.change("edge3", labels={}).settle()
    assert field.desired()[NodeName("edge3")] == "v2"


def test_the_state_has_one_size_for_fleets_of_any_size() -> None:
    field = Field(300, guard=GUARD).publish("v2").count(20, 1)
    assert stored_bytes(msgspec.to_builtins(field.state)) < 1024


# ---- nodes out of contact -----------------------------------------------------------------------


def test_a_node_out_of_contact_holds_no_wave_and_gets_its_version_when_it_is_back() -> None:
    field = Field()
    away = field.first("v2", 2)[1]
    field.change(away, is_connected=False).publish("v2")
    assert field.summary[0] is Phase.COMPLETE
    assert field.nodes[away].version == "v1"
    field.change(away, is_connected=True).settle()
    assert field.nodes[away].version == "v2"


def test_the_first_wave_has_a_node_in_contact() -> None:
    field = Field(promote="manual")
    away = field.first("v2", 5)
    field.change(*away, is_connected=False).publish("v2")
    shown = [node for node, member in field.nodes.items() if member.version == "v2"]
    assert len(shown) == 1
    assert field.number("v2") == 6


def test_without_any_contact_nothing_goes_on() -> None:
    field = Field()
    field.change(*field.nodes, is_connected=False).publish("v2").wait(1000)
    assert field.summary == (Phase.PROGRESSING, 0, 0)
    assert field.change(*field.nodes, is_connected=True).settle().summary[0] is Phase.COMPLETE


def test_a_node_that_was_away_during_a_rollback_returns_to_the_version_before() -> None:
    field = Field(promote="manual", guard=GUARD, waves=["50%"]).publish("v2")
    away = field.first("v2")[0]
    field.change(away, is_connected=False).count(100, 90)
    assert field.nodes[away].version == "v2"
    field.change(away, is_connected=True).settle()
    assert field.nodes[away].version == "v1"


def test_a_first_node_that_loses_contact_is_followed_by_another_one() -> None:
    field = Field(guard=GUARD).publish("v2")
    (canary,) = field.first("v2")
    field.change(canary, is_connected=False).settle()
    assert field.summary == (Phase.PROGRESSING, 1, 2)
    field.change(canary, is_connected=True).settle()
    assert field.summary == (Phase.PROGRESSING, 1, 2)


def test_a_wave_of_labels_whose_nodes_are_all_away_holds_nothing() -> None:
    field = Field(guard=GUARD, waves=["hall=north", "1"])
    field.change("edge3", labels={"hall": "north"}, is_connected=False).publish("v2")
    assert field.summary[:2] == (Phase.PROGRESSING, 2)
    assert field.wait(1000).summary[:2] == (Phase.PROGRESSING, 2)


# ---- guard and failures -------------------------------------------------------------------------


def test_a_guard_that_holds_lets_the_next_wave_begin() -> None:
    field = Field(guard=GUARD).publish("v2")
    assert field.summary == (Phase.PROGRESSING, 1, 1)
    assert field.wait(1000).summary == (Phase.PROGRESSING, 1, 1)  # no sample has been seen
    assert field.count(10, 4).summary == (Phase.PROGRESSING, 2, 2)  # proven anew in each wave
    assert field.count(10, 4).summary == (Phase.PROGRESSING, 3, 10)


def test_a_guard_that_fails_takes_the_version_back_and_says_by_which_figures() -> None:
    field = Field(guard=GUARD).publish("v2").count(10, 1).count(20, 15)
    assert field.state is not None
    assert field.state.message == "hard is 0.75 of 20 samples with version v2, and must be < 0.5"
    assert field.summary == (Phase.ROLLED_BACK, 2, 0)
    assert field.number("v1") == 20
    assert field.count(1000, 0).summary[0] is Phase.ROLLED_BACK  # final for this version
    assert field.publish("v3").summary == (Phase.PROGRESSING, 1, 1)


def test_too_few_samples_decide_nothing() -> None:
    assert Field(guard=GUARD).publish("v2").count(9, 9).summary == (Phase.PROGRESSING, 1, 1)


def test_a_version_that_gets_worse_is_taken_back_within_a_window() -> None:
    field = Field(guard=GUARD, promote="manual").publish("v2").count(10_000, 0)
    field.wait(61).count(1, 1)  # the good samples are in the window before
    assert field.count(20, 20).summary[0] is Phase.ROLLED_BACK


def test_counts_that_fall_with_a_lost_disk_begin_a_new_window() -> None:
    field = Field(guard=GUARD, promote="manual").publish("v2").count(100, 10).wait(61)
    field.figures = Figures(30, 5)
    assert field.settle().summary[0] is Phase.PROGRESSING
    assert field.count(20, 15).summary[0] is Phase.ROLLED_BACK


def test_on_failure_pause_nothing_more_goes_out_and_a_person_decides() -> None:
    field = Field(guard=GUARD, on_failure="pause", waves=["5"]).publish("v2").count(10, 9)
    assert field.summary == (Phase.PAUSED, 1, 5)
    assert field.count(1000, 0).wait(1000).summary == (Phase.PAUSED, 1, 5)
    rejected = msgspec.structs.replace(field.rollout, rejected="v2")
    field.edit(promoted=Promotion(version="v2", wave=2))
    assert field.summary[:2] == (Phase.PROGRESSING, 2)
    field.rollout = rejected
    assert field.settle().summary[0] is Phase.ROLLED_BACK


@pytest.mark.parametrize(("failed", "phase"), [(1, Phase.PROGRESSING), (2, Phase.ROLLED_BACK)])
def test_a_version_that_more_than_a_tenth_of_the_nodes_cannot_serve_has_failed(
    failed: int, phase: Phase
) -> None:
    field = Field(waves=["10"], promote="manual").publish("v2")
    field.change(*field.first("v2", failed), has_failed=True, version="v1")
    assert field.settle().summary[0] is phase


# ---- what a person does -------------------------------------------------------------------------


def test_a_pause_holds_the_next_wave_and_not_the_guard() -> None:
    field = Field(guard=GUARD).publish("v2").edit(paused=True).count(10, 0)
    assert field.wait(1000).summary == (Phase.PROGRESSING, 1, 1)
    assert field.count(10, 9).summary[0] is Phase.ROLLED_BACK


def test_a_paused_rollout_begins_no_wave_and_goes_on_when_it_is_not_paused() -> None:
    field = Field(paused=True).publish("v2")
    assert field.summary == (Phase.PROGRESSING, 0, 0)
    assert field.edit(promoted=Promotion(version="v2", wave=1)).summary == (Phase.PROGRESSING, 1, 1)
    assert field.edit(paused=False).summary[0] is Phase.COMPLETE


def test_a_manual_rollout_waits_for_each_promotion_of_its_version() -> None:
    field = Field(promote="manual").publish("v2")
    assert field.edit(promoted=Promotion(version="v1", wave=4)).summary[1] == 1
    assert field.edit(promoted=Promotion(version="v2", wave=3)).summary == (
        Phase.PROGRESSING,
        3,
        10,
    )
    assert field.edit(promoted=Promotion(version="v2", wave=4)).summary[0] is Phase.COMPLETE


def test_a_version_that_is_rejected_is_taken_back() -> None:
    field = Field(promote="manual").publish("v2").edit(rejected="v2")
    assert field.summary == (Phase.ROLLED_BACK, 1, 0)
    assert set(field.desired().values()) == {"v1"}


def test_the_last_good_version_published_again_needs_no_waves() -> None:
    field = Field(promote="manual").publish("v2").publish("v1")
    assert field.summary == (Phase.COMPLETE, 0, 20)


def test_a_version_in_place_of_an_unfinished_one_returns_to_the_last_good_one() -> None:
    field = Field(promote="manual", waves=["50%"]).publish("v2").publish("v3")
    assert set(field.desired().values()) == {"v1", "v3"}
    assert field.edit(rejected="v3").number("v1") == 20


# ---- at random ----------------------------------------------------------------------------------


def _moves(field: Field, chance: random.Random) -> list[Callable[[], Any]]:
    node = chance.choice(list(field.nodes))
    return [
        lambda: field.change(node, is_connected=chance.random() < 0.7),
        lambda: field.count(chance.randrange(20), 0),
        lambda: field.wait(chance.randrange(40)),
        field.serve,
        field.step,
        lambda: decide(  # a GlobalManager that is killed before it stores its decision
            field.rollout, field.state, field.version, [*field.nodes.values()], field.figures, at(0)
        ),
        lambda: field.nodes.pop(node) if len(field.nodes) > 3 else None,
        lambda: field.nodes.setdefault(
            NodeName(f"new{chance.random()}"), Member(NodeName("new"), {}, True, "")
        ),
    ]


@pytest.mark.parametrize("seed", range(40))
def test_no_node_goes_back_without_a_rollback_and_all_end_at_the_right_version(seed: int) -> None:
    chance = random.Random(seed)
    field = Field(12, guard=GUARD, pause_s=chance.choice([0, 30]))
    field.version = "v2"
    field.step()
    promoted: set[NodeName] = set()
    for _ in range(60):
        chance.choice(_moves(field, chance))()
        now = {node for node, version in field.desired().items() if version == "v2"}
        assert promoted & field.nodes.keys() <= now
        promoted = now
    field.change(*field.nodes, is_connected=True)
    for _ in range(10):
        field.count(20, 0).wait(60)
    assert {member.version for member in field.nodes.values()} == {"v2"}
    assert field.summary[0] is Phase.COMPLETE
