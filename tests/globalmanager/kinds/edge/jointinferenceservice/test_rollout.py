"""A rollout in waves: when a wave begins, what stops a version, and who gets which version."""

import math
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from edgeai.api.rollouts import Guard, ModelVersion, Phase, Promotion, Rollout, RolloutStatus
from edgeai.ids import NodeName
from globalmanager.kinds.edge.jointinferenceservice.rollout import (
    SLOW_S,
    Member,
    Waves,
    decide,
    place_of,
)
from globalmanager.kinds.shared.stored import stored_bytes
from tests.support.world import at

GUARD: Final = Guard(metric="hard", operator="<", threshold=0.5, min_samples=10, window_s=60)
WAVES: Final = ["1", "10%", "50%"]


def version(generation: int, content: str = "") -> ModelVersion:
    """Args: content: "": other content for each generation"""
    sha256 = f"{content or generation}"
    return ModelVersion(generation=generation, url="u", sha256=sha256, number=generation, model="m")


class Field:
    """A fleet whose nodes serve what they should, and the stored state of its rollout."""

    def __init__(self, number: int = 20, **rollout: Any) -> None:
        self.rollout: Rollout | None = Rollout(**{"waves": WAVES, **rollout})
        self.state: RolloutStatus | None = None
        self.nodes: dict[NodeName, Member] = {}
        self.held: dict[NodeName, int] = {}  # number of the assignment of each node
        self.second = 0.0
        self.newest: ModelVersion | None = version(1)
        self.broken: set[int] = set()  # numbers of versions that no node can load
        self.add(*(f"edge{n}" for n in range(number)))
        self.settle()

    def add(self, *nodes: str, **fields: Any) -> "Field":
        for node in map(NodeName, nodes):
            self.nodes[node] = replace(Member(node, {}, is_connected=True, is_able=True), **fields)
        return self

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
        self.decision = decide(self.rollout, self.state, self.newest, members, at(self.second))
        self.state = self.decision.state
        return self.decision.check_in_s

    def serve(self) -> None:
        """What a node has never goes back a version: its LocalController refuses that."""
        for node, content in self.desired().items():
            member = self.nodes[node]
            if not member.is_connected:
                continue
            number = self.held[node] = max(self.held.get(node, 0), content.number)
            if not member.is_able or member.crashes_in_s <= 0:
                continue
            if number in self.broken:
                self.nodes[node] = replace(member, fails=number)
            elif member.serves != number:
                self.nodes[node] = replace(member, serves=number, fails=0, samples=0, hits=0)

    def publish(self, generation: int, content: str = "") -> "Field":
        self.newest = version(generation, content)
        return self.settle()

    def edit(self, **fields: Any) -> "Field":
        assert self.rollout
        self.rollout = replace(self.rollout, **fields)
        return self.settle()

    def change(self, *nodes: str, **fields: Any) -> "Field":
        for node in map(NodeName, nodes):
            self.nodes[node] = replace(self.nodes[node], **fields)
        return self

    def wait(self, seconds: float) -> "Field":
        self.second += seconds
        return self.settle()

    def count(self, seen: int, hard: int, *nodes: str) -> "Field":
        """The workers that serve the newest version count, each so much more; or those of nodes."""
        assert self.state
        for node, member in self.nodes.items():
            is_meant = node in nodes if nodes else member.serves == self.state.version.number
            if is_meant and member.is_connected:
                samples, hits = member.samples + seen, member.hits + hard
                self.nodes[node] = replace(member, samples=samples, hits=hits)
        return self.settle()

    def desired(self) -> Mapping[NodeName, ModelVersion]:
        assert self.state is not None
        waves = Waves(self.state)
        return {n: waves.version_of(n, member.labels) for n, member in self.nodes.items()}

    def with_version(self, generation: int) -> list[NodeName]:
        """The nodes that should serve the version."""
        desired = self.desired().items()
        return [node for node, content in desired if content.generation == generation]

    def first(self, generation: int, number: int = 1) -> list[NodeName]:
        """The nodes that get the version first, when nothing was taken back before."""
        places = {node: place_of(node, version(generation)) for node in self.nodes}
        return sorted(places, key=lambda node: places[node])[:number]

    @property
    def summary(self) -> tuple[Phase, int, int]:
        """Phase, wave, and how many nodes should serve the present version."""
        assert self.state is not None
        count = len(self.with_version(self.state.version.generation))
        return self.state.phase, self.state.wave, count

    @property
    def known(self) -> RolloutStatus:
        assert self.state is not None
        return self.state

    @property
    def phase(self) -> Phase:
        return self.summary[0]


# ---- waves --------------------------------------------------------------------------------------


def test_the_first_version_goes_to_all_nodes_at_once() -> None:
    assert Field().summary == (Phase.COMPLETE, 0, 20)


def test_waves_follow_each_other_after_their_pause() -> None:
    field = Field(pause_s=60).publish(2)
    course = [field.summary, *(field.wait(60).summary for _ in range(4))]
    assert course == [
        (Phase.PROGRESSING, 1, 1),
        (Phase.PROGRESSING, 2, 2),
        (Phase.PROGRESSING, 3, 10),
        (Phase.PROGRESSING, 4, 20),
        (Phase.COMPLETE, 0, 20),
    ]


def test_a_pause_is_told_as_the_time_of_the_next_decision() -> None:
    field = Field(pause_s=60).publish(2)
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
        (["hall=nowhere", "1"], [1]),
        (["hall=north,line=2"], [2]),
    ],
)
def test_sizes_of_waves(waves: list[str], sizes: list[int]) -> None:
    """Of those before the last, which is all nodes."""
    field = Field(waves=waves, pause_s=60)
    for number, node in enumerate(field.first(2, 4)):
        field.change(node, labels={"hall": "north", "line": str(number // 2 + 1)})
    field.publish(2)
    seen = []
    while field.phase is not Phase.COMPLETE:
        seen.append(field.summary[2])
        field.wait(60)
    assert [size for size in seen[:-1] if size] == sizes


def test_nodes_that_come_get_the_version_of_their_place() -> None:
    field = Field(promote="manual", waves=["50%"]).publish(2)
    state, before = field.state, set(field.with_version(2))
    field.add(*(f"new{number}" for number in range(100))).settle()
    assert field.state == state
    assert 30 < len(field.with_version(2)) < 90
    assert before <= set(field.with_version(2))


def test_the_state_has_one_size_for_fleets_of_any_size() -> None:
    field = Field(300, guard=GUARD).publish(2).count(20, 1)
    assert stored_bytes(msgspec.to_builtins(field.state)) < 1024


def test_without_a_rollout_every_version_goes_out_at_once() -> None:
    field = Field(promote="manual").publish(2)
    field.rollout = None
    assert field.publish(3).summary == (Phase.COMPLETE, 0, 20)
    field = Field(promote="manual").publish(2).edit(rejected=2)
    field.rollout = None
    assert field.settle().summary == (Phase.COMPLETE, 0, 20)
    assert {member.serves for member in field.nodes.values()} == {field.known.version.number}


def test_without_a_rollout_the_version_has_a_number_that_no_other_service_has_given() -> None:
    field = Field(promote="manual").publish(2).edit(rejected=2)
    field.rollout = None
    # Another service has taken the version back later, as number 4.
    field.newest = replace(version(2), number=5)
    assert field.settle().known.version.number > 4
    assert {content.sha256 for content in field.desired().values()} == {"2"}


@pytest.mark.parametrize("wave", ["10%\n", "3\n", "hall=north\n"])
def test_a_wave_has_no_line_feed(wave: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="line feed"):
        msgspec.convert({"waves": [wave]}, Rollout)


@pytest.mark.parametrize(
    ("wave", "in_contact", "most"),
    [("1", 1, 12), ("1", 100, 12), ("10%", 1, 210), ("100", 10, 210), ("100", 900, 210)],
)
def test_a_wave_keeps_its_size_while_most_nodes_are_out_of_contact(
    wave: str, in_contact: int, most: int
) -> None:
    """They get the version when they are back, before it has shown anything."""
    for generation in range(2, 12):
        field = Field(1000, waves=[wave], promote="manual")
        away = list(field.nodes)[in_contact:]
        field.change(*away, is_connected=False).publish(generation)
        field.change(*away, is_connected=True).settle()
        assert 1 <= len(field.with_version(generation)) <= most


@pytest.mark.parametrize("promoted", [0, 1, 2])
def test_a_wave_waits_until_nodes_of_its_size_are_in_contact(promoted: int) -> None:
    field = Field(100, waves=["1", "2"], promote="manual")
    *away, last = field.first(2, 100)
    field.change(*away, is_connected=False).publish(2)
    if promoted:
        field.edit(promoted=Promotion(version=2, wave=promoted))
    assert field.summary == (Phase.PROGRESSING, 0, 0)
    assert field.decision.progress.endswith("waits for nodes in contact")
    field.change(*away[:20], is_connected=True).settle()
    assert field.summary == (Phase.PROGRESSING, max(1, promoted), max(1, promoted))
    assert last not in field.with_version(2)


# ---- nodes out of contact, nodes that break -----------------------------------------------------


def test_a_node_away_before_holds_no_wave_and_gets_its_version_when_it_is_back() -> None:
    field = Field()
    away = field.first(2, 2)[1]
    field.change(away, is_connected=False).publish(2)
    assert field.phase is Phase.COMPLETE
    assert field.nodes[away].serves == 1
    field.change(away, is_connected=True).settle()
    assert field.nodes[away].serves == 2


def test_the_first_wave_has_a_node_that_can_show_something() -> None:
    field = Field(promote="manual")
    first = field.first(2, 8)
    field.change(*first[:4], is_connected=False).change(*first[4:6], is_able=False).publish(2)
    shown = [node for node, member in field.nodes.items() if member.serves == 2]
    assert shown == [first[6]]
    assert field.summary == (Phase.PROGRESSING, 1, 7)


def test_without_any_contact_nothing_goes_on() -> None:
    field = Field()
    field.change(*field.nodes, is_connected=False).publish(2).wait(1000)
    assert field.summary == (Phase.PROGRESSING, 0, 0)
    assert field.change(*field.nodes, is_connected=True).settle().phase is Phase.COMPLETE


@pytest.mark.parametrize("has_told", [True, False])
def test_a_version_that_cuts_off_or_kills_its_nodes_does_not_walk_through_the_fleet(
    has_told: bool,
) -> None:
    field = Field(promote="manual").publish(2)
    (canary,) = field.first(2)
    field.change(canary, is_connected=False, serves=2 if has_told else 1)
    field.edit(promote="auto").wait(10 * SLOW_S)
    assert field.summary == (Phase.PROGRESSING, 1, 1)
    assert field.change(canary, is_connected=True).settle().phase is Phase.COMPLETE


@pytest.mark.parametrize(("lost", "wave"), [(1, 2), (2, 1)])
def test_a_wave_goes_on_without_one_in_ten_of_its_nodes(lost: int, wave: int) -> None:
    field = Field(promote="manual", waves=["10"]).publish(2)
    field.change(*field.first(2, lost), is_connected=False)
    field.edit(promoted=Promotion(version=2, wave=1), promote="auto", pause_s=60).wait(60)
    assert field.summary[:2] == (Phase.PROGRESSING, wave)


def test_broken_nodes_of_before_neither_hold_a_wave_nor_count_as_failures() -> None:
    field = Field(waves=["50%"])
    old = [node for number, node in enumerate(field.nodes) if number % 2]
    field.change(*old, is_able=False, crashes_in_s=0).publish(2)
    assert field.phase is Phase.COMPLETE
    # They load the new version, and crash as before.
    field = Field(waves=["50%"])
    field.change(*field.first(2, 4), is_able=False, crashes_in_s=0).publish(2)
    field.change(*field.first(2, 4), serves=2).settle()
    assert field.phase is Phase.COMPLETE


def test_a_fleet_that_has_never_served_gets_the_version_that_repairs_it() -> None:
    field = Field().change(*Field().nodes, is_able=False, serves=0).publish(2)
    assert field.summary == (Phase.PROGRESSING, 1, 1)
    (canary,) = field.with_version(2)
    assert field.change(canary, is_able=True).settle().phase is Phase.COMPLETE


def test_a_node_that_does_not_get_the_version_holds_its_wave_for_a_while() -> None:
    field = Field(waves=["10"])
    field.newest = version(2)
    field.step()
    _slow, *others = field.with_version(2)
    field.change(*others, serves=2)
    field.step()
    assert field.known.wave == 1
    field.second += SLOW_S
    field.step()
    assert field.known.wave == 2


@pytest.mark.parametrize("on_failure", ["rollback", "pause"])
def test_a_version_that_the_first_node_cannot_fetch_has_failed_after_a_while(
    on_failure: Any,
) -> None:
    field = Field(waves=["1"], on_failure=on_failure)
    field.newest = version(2)
    field.step()
    (canary,) = field.first(2)
    field.change(canary, obstacle="NotFound")
    field.step()
    assert field.decision.progress.endswith(f"0 of 1 nodes serve version 2; not {canary}: NotFound")
    field.second += SLOW_S - 1
    field.step()
    assert field.summary == (Phase.PROGRESSING, 1, 1)
    assert field.decision.check_in_s == 1
    field.second += 1
    field.step()
    assert field.phase is (Phase.PAUSED if on_failure == "pause" else Phase.ROLLED_BACK)
    where = f"on 1 of the 1 nodes that should serve it: {canary}"
    fault = "cannot be fetched (NotFound), cannot be loaded or crashes"
    assert field.known.message == f"version 2 {fault} {where}"


@pytest.mark.parametrize(
    "member",
    [
        {"obstacle": ""},
        {"obstacle": "Unavailable"},
        {"obstacle": "NoSpace", "is_connected": False},
        {"obstacle": "NoSpace", "is_able": False},
    ],
    ids=["slow", "server away", "node away", "worker broken"],
)
def test_a_node_that_only_waits_for_the_content_takes_nothing_back(member: dict[str, Any]) -> None:
    field = Field(waves=["1"])
    field.newest = version(2)
    field.step()
    field.change(*field.first(2), **member)
    field.second += 10 * SLOW_S
    field.step()
    assert field.summary == (Phase.PROGRESSING, 1, 1)


def test_one_node_in_ten_without_the_content_holds_its_wave_for_a_while() -> None:
    field = Field(waves=["10"])
    field.newest = version(2)
    field.step()
    full, *others = field.with_version(2)
    field.change(*others, serves=2).change(full, obstacle="NoSpace")
    field.second += SLOW_S
    field.step()
    assert field.known.wave == 2


@pytest.mark.parametrize("reason", ["probe", "restart"])
def test_a_passing_fault_of_the_first_node_takes_nothing_back(reason: str) -> None:
    field = Field(pause_s=60).publish(2)
    (canary,) = field.first(2)
    serves = 2 if reason == "probe" else 0
    field.change(canary, is_able=False, serves=serves)
    field.step()
    assert field.phase is Phase.PROGRESSING
    field.change(canary, is_able=True).settle().wait(60)
    assert field.summary[1] == 2


@pytest.mark.parametrize(
    "fault", [{"fails": 2}, {"crashes_in_s": 0, "is_able": False, "serves": 2}]
)
@pytest.mark.parametrize(("failed", "phase"), [(1, Phase.PROGRESSING), (2, Phase.ROLLED_BACK)])
def test_a_version_that_more_than_a_tenth_of_the_nodes_cannot_serve_has_failed(
    failed: int, phase: Phase, fault: dict[str, Any]
) -> None:
    field = Field(waves=["10"], promote="manual").publish(2)
    field.change(*field.first(2, failed), serves=1).change(*field.first(2, failed), **fault)
    field.step()
    assert field.phase is phase


def test_a_version_that_the_first_node_cannot_load_is_taken_back_and_says_where() -> None:
    field = Field()
    field.broken = {2}
    field.publish(2)
    assert field.summary == (Phase.ROLLED_BACK, 1, 0)
    (canary,) = field.first(2)
    where = f"on 1 of the 1 nodes that should serve it: {canary}"
    assert field.known.message == f"version 2 cannot be loaded or crashes {where}"
    assert {member.serves for member in field.nodes.values()} == {3}


def test_a_fault_of_another_version_is_none_of_the_new_one() -> None:
    field = Field(waves=["10"])
    field.newest = version(2)
    field.step()
    field.change(*field.with_version(2), fails=1)
    field.step()
    assert field.phase is Phase.PROGRESSING


def test_a_node_that_was_away_during_a_rollback_returns_to_the_version_before() -> None:
    field = Field(promote="manual", waves=["50%"]).publish(2)
    away = field.first(2)[0]
    field.change(away, is_connected=False).edit(rejected=2)
    assert field.nodes[away].serves == 2
    field.change(away, is_connected=True).settle()
    assert field.nodes[away].serves == 3
    assert field.desired()[away].sha256 == "1"


def test_broken_and_lost_nodes_hold_up_no_rollback() -> None:
    field = Field(promote="manual", waves=["50%"], guard=GUARD).publish(2)
    first = field.first(2, 8)
    field.change(*first[:3], is_connected=False).change(*first[3:5], is_able=False, crashes_in_s=0)
    field.count(20, 19, *first[5:])
    assert field.phase is Phase.ROLLED_BACK


def test_when_all_nodes_of_a_wave_leave_others_take_their_place() -> None:
    field = Field(guard=GUARD).publish(2)
    (canary,) = field.first(2)
    del field.nodes[canary]
    assert field.settle().summary == (Phase.PROGRESSING, 1, 1)
    assert field.wait(1000).summary == (Phase.PROGRESSING, 1, 1)  # without a sample
    assert field.decision.progress.endswith("; waits for 10 samples")
    field.nodes.clear()
    assert field.settle().phase is Phase.PROGRESSING


def test_a_fleet_that_shrinks_is_not_held_by_the_nodes_that_have_gone() -> None:
    field = Field(promote="manual", waves=["50%"]).publish(2)
    for node in field.with_version(2)[:4]:
        del field.nodes[node]
    assert field.edit(promote="auto").phase is Phase.COMPLETE


def test_a_wave_of_labels_whose_nodes_are_all_away_holds_nothing() -> None:
    field = Field(guard=GUARD, waves=["hall=north", "1"])
    field.change("edge3", labels={"hall": "north"}, is_connected=False).publish(2)
    assert field.summary[:2] == (Phase.PROGRESSING, 2)


def test_a_node_that_loses_the_label_of_its_wave_keeps_the_version() -> None:
    field = Field(waves=["hall=north"], promote="manual")
    field.change("edge3", labels={"hall": "north"}).publish(2)
    assert field.nodes[NodeName("edge3")].serves == 2
    field.change("edge3", labels={}).settle()
    assert field.nodes[NodeName("edge3")].serves == 2


@pytest.mark.parametrize("moment", ["before it is published", "in its first wave"])
def test_a_fleet_without_a_node_for_a_moment_shows_nothing(moment: str) -> None:
    field = Field(guard=GUARD)
    if moment == "in its first wave":
        field.publish(2)
    nodes, field.nodes = field.nodes, {}
    field.publish(2)
    assert field.phase is Phase.PROGRESSING
    field.nodes = nodes
    assert field.settle().summary == (Phase.PROGRESSING, 1, 1)


@pytest.mark.parametrize("fault", [{"is_able": False}, {"is_able": False, "crashes_in_s": 30}])
def test_workers_that_do_not_run_do_not_serve(fault: dict[str, Any]) -> None:
    """A version that hangs or ends its workers stays in its wave."""
    field = Field(waves=["1", "50%"], pause_s=60).publish(2)
    field.change(*field.with_version(2), **fault).wait(60)
    assert field.wait(10 * SLOW_S).summary == (Phase.PROGRESSING, 1, 1)
    (canary,) = field.first(2)
    assert field.decision.progress == f"wave 1 of 3: 0 of 1 nodes serve version 2; not {canary}"


def test_a_worker_that_starts_again_and_again_does_not_serve_for_the_pause() -> None:
    field = Field(waves=["1", "50%"], pause_s=60).publish(2)
    (canary,) = field.first(2)
    for back_off_s in (10, 20, 40):
        field.change(canary, is_able=False, crashes_in_s=60).settle()
        field.wait(back_off_s).change(canary, is_able=True, crashes_in_s=math.inf).settle()
        field.wait(5)
    assert field.summary == (Phase.PROGRESSING, 1, 1)
    assert field.wait(60).summary[1] == 2


def test_the_next_decision_is_due_when_a_worker_has_crashed_for_long_enough() -> None:
    field = Field(pause_s=100_000).publish(2)
    field.change(*field.first(2), is_able=False, crashes_in_s=42)
    field.step()
    assert field.decision.check_in_s == 42


@pytest.mark.parametrize("recovered", [0, 1, 3])
@pytest.mark.parametrize("back_off_s", [0, 30])
def test_broken_nodes_of_before_hide_no_crash_with_the_version(
    recovered: int, back_off_s: float
) -> None:
    field = Field(promote="manual")
    *old, canary = field.first(2, 4)
    field.change(*old, is_able=False, crashes_in_s=back_off_s).publish(2)
    field.change(*old, crashes_in_s=0).settle()
    field.change(*old[:recovered], is_able=True, crashes_in_s=math.inf).settle()
    assert field.phase is Phase.PROGRESSING
    field.change(canary, is_able=False, crashes_in_s=0)
    assert field.settle().phase is Phase.ROLLED_BACK
    assert f"crashes on 1 of the {1 + recovered} nodes" in field.known.message
    assert field.known.message.endswith(f"that should serve it: {canary}")


def test_a_worker_that_crashes_before_it_has_told_the_version_is_a_failure() -> None:
    field = Field()
    field.newest = version(2)
    field.step()
    (canary,) = field.with_version(2)
    field.change(canary, is_able=False, crashes_in_s=0).settle()
    assert field.phase is Phase.ROLLED_BACK
    assert field.known.message.endswith(canary)


def test_more_broken_nodes_of_before_than_the_state_names_take_no_version_back() -> None:
    field = Field(2000, waves=["1%", "50%"], promote="manual", pause_s=60)
    old, canary, others = [*field.nodes][:330], "edge330", [*field.nodes][331:]
    field.change(*old, is_able=False, crashes_in_s=0).publish(2)
    for wave in (2, 3):
        field.edit(promoted=Promotion(version=2, wave=wave)).wait(10)
        assert (*field.summary[:2], len(field.known.broken)) == (Phase.PROGRESSING, wave, 100)
    # Each crash and fault with the version counts as well as ever.
    field.change(canary, is_able=False, crashes_in_s=0).change(*others[:165], fails=2, serves=1)
    assert field.settle().phase is Phase.PROGRESSING
    field.change(*others[:170], fails=2, serves=1)
    assert field.settle().phase is Phase.ROLLED_BACK
    assert "crashes on 171 of the 1670 nodes" in field.known.message


def test_a_state_with_the_number_of_broken_nodes_alone_goes_on() -> None:
    field = Field(waves=["50%"], promote="manual")
    *old, canary = field.first(2, 4)
    field.change(*old, is_able=False, crashes_in_s=0).publish(2)
    field.state = replace(field.known, broken=[], crashing=3)
    assert field.settle().phase is Phase.PROGRESSING
    field.change(canary, is_able=False, crashes_in_s=0)
    assert field.settle().phase is Phase.ROLLED_BACK
    assert "crashes on 1 of the" in field.known.message


@pytest.mark.parametrize(("serves", "phase"), [(1, Phase.PROGRESSING), (2, Phase.ROLLED_BACK)])
def test_a_node_that_crashes_out_of_contact_is_a_failure_if_it_has_the_version(
    serves: int, phase: Phase
) -> None:
    field = Field(10, waves=["100%"], pause_s=600)
    field.change("edge0", "edge1", is_connected=False).publish(2)
    field.change("edge0", "edge1", serves=serves, is_able=False, crashes_in_s=0)
    assert field.settle().phase is phase


def test_crashes_of_each_wave_add_up() -> None:
    field = Field(100, waves=["10", "20"], promote="manual").publish(2)
    first = field.first(2, 20)
    field.change(first[0], is_able=False, crashes_in_s=0)
    field.edit(promoted=Promotion(version=2, wave=2))
    assert field.phase is Phase.PROGRESSING
    field.change(first[10], is_able=False, crashes_in_s=0).settle()
    assert field.summary[0] is Phase.PROGRESSING
    field.change(first[11], is_able=False, crashes_in_s=0).settle()
    assert field.known.phase is Phase.ROLLED_BACK
    assert "crashes on 3 of the 20 nodes" in field.known.message


def test_nodes_that_come_into_contact_after_a_wave_has_begun_count_among_those_that_serve() -> None:
    field = Field(100, waves=["hall=north"], promote="manual")
    field.change(*field.nodes, labels={"hall": "north"})
    away = list(field.nodes)[10:]
    field.change(*away, is_connected=False).publish(2).change(*away, is_connected=True).settle()
    field.change(*away[:9], serves=1, fails=2).settle()
    assert field.phase is Phase.PROGRESSING
    assert field.change(*away[:12], serves=1, fails=2).settle().phase is Phase.ROLLED_BACK


def test_an_edit_of_the_waves_takes_no_version_from_a_node() -> None:
    field = Field(promote="manual", waves=["hall=north", "50%"])
    field.change("edge3", "edge4", labels={"hall": "north"}).publish(2)
    before = set(field.with_version(2))
    assert before == {"edge3", "edge4"}
    assert before <= set(field.edit(waves=["1", "50%"]).with_version(2))
    field.edit(promoted=Promotion(version=2, wave=2))
    assert before <= set(field.with_version(2))
    assert {field.nodes[node].serves for node in before} == {2}


@pytest.mark.parametrize(
    ("rollout", "text"),
    [
        ({"paused": True}, "held by spec.rollout.paused"),
        ({"promote": "manual"}, "waits for spec.rollout.promoted"),
        ({"pause_s": 60}, "waits 60 s from 2026-01-02T03:04:05Z"),
        ({"guard": GUARD}, "waits for 10 samples"),
    ],
)
def test_a_rollout_says_what_it_waits_for(rollout: dict[str, Any], text: str) -> None:
    field = Field(**{"promote": "manual", **rollout, "paused": False}).publish(2)
    field.edit(paused=rollout.get("paused", False))
    assert field.decision.progress == f"wave 1 of 4: 1 of 1 nodes serve version 2; {text}"


# ---- the guard ----------------------------------------------------------------------------------


def test_a_guard_that_holds_for_its_window_lets_the_next_wave_begin() -> None:
    field = Field(guard=GUARD).publish(2)
    assert field.wait(1000).summary == (Phase.PROGRESSING, 1, 1)  # no sample has been seen
    assert field.count(10, 4).summary == (Phase.PROGRESSING, 2, 2)
    assert field.wait(59).summary == (Phase.PROGRESSING, 2, 2)
    assert field.wait(1).summary == (Phase.PROGRESSING, 3, 10)


def test_a_guard_that_fails_takes_the_version_back_and_says_by_which_figures() -> None:
    field = Field(guard=GUARD).publish(2).count(20, 15)
    assert field.known.message == "hard is 0.75 of 20 samples with version 2, and must be < 0.5"
    assert field.summary == (Phase.ROLLED_BACK, 1, 0)
    assert len(field.with_version(1)) == 20
    assert field.count(1000, 0).phase is Phase.ROLLED_BACK  # final for this version
    assert field.publish(3).summary == (Phase.PROGRESSING, 1, 1)


def test_too_few_samples_decide_nothing() -> None:
    assert Field(guard=GUARD).publish(2).count(9, 9).wait(1000).summary[:2] == (
        Phase.PROGRESSING,
        1,
    )


def test_samples_of_another_version_do_not_count() -> None:
    field = Field(guard=GUARD, promote="manual").publish(2)
    others = [node for node in field.nodes if field.nodes[node].serves == 1]
    field.count(1000, 1000, *others).count(10, 1)
    assert field.phase is Phase.PROGRESSING


def test_counts_that_begin_again_with_a_process_or_a_ledger_are_still_a_share() -> None:
    field = Field(guard=GUARD, promote="manual", waves=["2"]).publish(2).count(100, 40)
    one, _ = field.first(2, 2)
    field.change(one, samples=5, hits=1).settle()
    assert field.phase is Phase.PROGRESSING
    assert field.count(300, 299).phase is Phase.ROLLED_BACK


def test_on_failure_pause_nothing_more_goes_out_and_a_person_decides() -> None:
    field = Field(guard=GUARD, on_failure="pause", waves=["5"]).publish(2).count(10, 9)
    assert field.summary == (Phase.PAUSED, 1, 5)
    assert field.count(1000, 0).wait(1000).summary == (Phase.PAUSED, 1, 5)
    field.edit(promoted=Promotion(version=2, wave=2)).count(1000, 999)
    assert field.summary == (Phase.PAUSED, 2, 20)  # a wave that a person begins is judged, too
    assert field.edit(rejected=2).phase is Phase.ROLLED_BACK


def test_what_a_person_promotes_after_a_failure_is_judged_again() -> None:
    waves = ["1", "2", "3", "4"]
    field = Field(100, guard=GUARD, on_failure="pause", waves=waves).publish(2).count(20, 20)
    field.edit(promoted=Promotion(version=2, wave=2))
    for _ in range(6):
        field.count(20, 20).wait(100)
    assert field.summary == (Phase.PAUSED, 2, 2)
    assert field.edit(promoted=Promotion(version=2, wave=6)).phase is Phase.COMPLETE


def test_a_node_that_leaves_opens_no_way_round_the_guard() -> None:
    field = Field(guard=GUARD, waves=["hall=north"])
    north = field.first(2, 10)
    field.change(*north, labels={"hall": "north"}).change(*north[1:], is_connected=False)
    field.publish(2)
    del field.nodes[north[-1]]
    assert field.settle().wait(1000).summary[:2] == (Phase.PROGRESSING, 1)
    assert field.count(10, 0).wait(60).phase is Phase.COMPLETE


def test_one_node_of_many_does_not_decide_by_its_counts() -> None:
    field = Field(guard=GUARD, waves=["100%"]).publish(2).count(1000, 100)
    assert field.count(10**9, 10**9, "edge0").phase is Phase.PROGRESSING
    field = Field(guard=GUARD, waves=["100%"]).publish(2)
    assert field.count(10**9, 0, "edge0").count(1000, 900).phase is Phase.ROLLED_BACK


# ---- what a person does -------------------------------------------------------------------------


def test_a_pause_holds_the_next_wave_and_not_the_guard() -> None:
    field = Field(guard=GUARD).publish(2).edit(paused=True).count(10, 0)
    assert field.wait(1000).summary == (Phase.PROGRESSING, 1, 1)
    assert field.count(100, 99).phase is Phase.ROLLED_BACK


def test_a_paused_rollout_begins_no_wave_and_goes_on_when_it_is_not_paused() -> None:
    field = Field(paused=True).publish(2)
    assert field.summary == (Phase.PROGRESSING, 0, 0)
    assert field.edit(promoted=Promotion(version=2, wave=1)).summary == (Phase.PROGRESSING, 1, 1)
    assert field.edit(paused=False).phase is Phase.COMPLETE


def test_a_manual_rollout_waits_for_each_promotion_of_its_version() -> None:
    field = Field(promote="manual").publish(2)
    assert field.edit(promoted=Promotion(version=1, wave=4)).summary[1] == 1
    assert field.edit(promoted=Promotion(version=2, wave=3)).summary[1:] == (3, 10)
    assert field.edit(promoted=Promotion(version=2, wave=4)).phase is Phase.COMPLETE


@pytest.mark.parametrize("promote", ["manual", "auto"])
def test_a_version_that_is_rejected_is_taken_back_also_when_all_have_it(promote: str) -> None:
    field = Field(promote=promote).publish(2).edit(rejected=2)
    assert field.phase is Phase.ROLLED_BACK
    assert {content.sha256 for content in field.desired().values()} == {"1"}
    assert {member.serves for member in field.nodes.values()} == {3}


def test_a_first_version_that_is_rejected_has_none_before_it() -> None:
    field = Field().edit(rejected=1)
    assert field.summary == (Phase.COMPLETE, 0, 20)
    text = "version 1 is in spec.rollout.rejected, and there is none before it"
    assert field.decision.progress == text
    assert field.publish(2).phase is Phase.COMPLETE


# ---- versions that follow each other ------------------------------------------------------------


def test_the_last_good_version_published_again_needs_no_waves() -> None:
    field = Field(promote="manual").publish(2).publish(3, content="1")
    assert field.summary == (Phase.COMPLETE, 0, 20)
    assert {member.serves for member in field.nodes.values()} == {3}


def test_an_edit_that_keeps_the_content_is_no_new_version() -> None:
    field = Field(promote="manual").publish(2)
    before = field.summary
    field.publish(3, content="2")
    assert field.summary == before
    assert field.known.version.number == 2


def test_without_a_digest_every_edit_is_a_new_version() -> None:
    field = Field(promote="manual")
    field.newest = replace(version(2), sha256="")
    field.settle()
    field.newest = replace(version(3), sha256="")
    assert field.settle().known.version.generation == 3


def test_the_same_content_published_again_after_a_rollback_is_tried_again() -> None:
    field = Field(promote="manual").publish(2).edit(rejected=2)
    assert field.publish(3, content="2").summary == (Phase.PROGRESSING, 1, 1)


def test_a_version_in_place_of_an_unfinished_one_returns_to_the_last_good_one() -> None:
    field = Field(promote="manual", waves=["50%"]).publish(2).publish(3)
    assert {content.sha256 for content in field.desired().values()} == {"1", "3"}
    assert {member.serves for member in field.nodes.values()} == {4, 5}
    assert len(field.edit(rejected=5).with_version(1)) == 20


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_services_that_use_one_model_give_a_number_to_one_content(order: tuple[int, int]) -> None:
    fields = [Field(3, promote="manual"), Field(3)]
    contents: dict[int, str] = {}
    returns = 0

    def tell(field: Field, generation: int, **edit: Any) -> None:
        nonlocal returns
        contents[generation + returns] = f"{generation}"  # for a service without a rollout
        field.newest = replace(version(generation), number=generation + returns)
        field.edit(**edit)
        for content in field.desired().values():
            assert contents.setdefault(content.number, content.sha256) == content.sha256
        most = max(content.number for content in field.desired().values())
        returns = max(returns, most + 1 - generation if most > generation + returns else 0)

    for number in order:
        tell(fields[number], 2)
    tell(fields[0], 2, rejected=fields[0].known.version.number)
    for generation in (3, 4):
        for number in order:
            tell(fields[number], generation)
    for number in order:
        tell(fields[number], 4, rejected=fields[number].known.version.number)
    assert {each.phase for each in fields} == {Phase.ROLLED_BACK}


def test_a_version_that_was_missed_is_never_served() -> None:
    field = Field(promote="manual")
    field.newest = version(2)
    assert {one.generation for one in field.publish(3).desired().values()} == {1, 3}


@pytest.mark.parametrize("phase", [Phase.PROGRESSING, Phase.ROLLED_BACK])
def test_a_model_that_is_older_than_the_state_is_no_news(phase: Phase) -> None:
    field = Field(guard=GUARD, waves=["50%"]).publish(2)
    if phase is Phase.ROLLED_BACK:
        field.count(20, 20)
    before = field.state
    assert field.publish(1).state == before
    assert field.publish(2).state == before
    assert field.phase is phase


def test_while_the_model_is_missing_or_wrong_the_rollout_goes_on() -> None:
    field = Field(pause_s=60).publish(2)
    field.newest = None
    assert field.wait(60).summary[:2] == (Phase.PROGRESSING, 2)
    assert field.edit(rejected=2).phase is Phase.ROLLED_BACK


# ---- at random ----------------------------------------------------------------------------------


def _moves(field: Field, chance: random.Random) -> list[Callable[[], Any]]:
    node = chance.choice(list(field.nodes))
    newest = field.newest.generation if field.newest else 1
    rejected = chance.choice([0, 0, newest])
    return [
        lambda: field.change(node, is_connected=chance.random() < 0.7),
        lambda: field.change(node, is_able=chance.random() < 0.7, crashes_in_s=math.inf),
        lambda: field.count(chance.randrange(20), 0),
        lambda: field.wait(chance.randrange(400)),
        field.serve,
        field.step,
        lambda: decide(  # a GlobalManager that is killed before it stores its decision
            field.rollout, field.state, field.newest, [*field.nodes.values()], at(field.second)
        ),
        lambda: field.nodes.pop(node) if len(field.nodes) > 3 else None,
        lambda: field.add(f"new{chance.randrange(10**6)}"),
        lambda: field.publish(newest + 1, content=chance.choice(["", "1", "a"])),
        lambda: field.edit(rejected=rejected),
    ]


@pytest.mark.parametrize("seed", range(60))
def test_no_node_goes_back_without_a_rollback_and_all_end_at_the_right_version(seed: int) -> None:
    chance = random.Random(seed)
    field = Field(12, guard=GUARD, pause_s=chance.choice([0, 30]))
    numbers: dict[NodeName, ModelVersion] = {}
    for _ in range(80):
        chance.choice(_moves(field, chance))()
        for node, content in field.desired().items():
            before = numbers.get(node, content)
            assert before.number <= content.number, f"{node} goes back from {before} to {content}"
            is_same = before.number == content.number
            assert not is_same or before.sha256 == content.sha256, "one number, two contents"
            numbers[node] = content
    field.change(*field.nodes, is_connected=True, is_able=True).edit(rejected=0)
    assert field.newest
    field.publish(field.newest.generation + 1)
    for _ in range(10):
        field.count(20, 0).wait(60)
    assert field.phase is Phase.COMPLETE
    assert {member.serves for member in field.nodes.values()} == {field.known.version.number}
