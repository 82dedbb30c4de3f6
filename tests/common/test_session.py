"""The channel's two ends, joined in memory: convergence, liveness, and every broken peer."""

import tracemalloc
from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from common import wire
from common.session import WINDOW, Closed, Session, Timing
from edgeai.ids import TaskKey, Uid, WorkerName
from globalmanager.edge.sessions.cloud_session import (
    MAX_UNACKNOWLEDGED_REPORTS,
    CloudSession,
    Desired,
    EdgeSynced,
    TaskAcked,
)
from localcontroller.ledger.outbox import Outgoing, ReportAcked
from localcontroller.link.edge_session import GAP_S, REPORTS_OF_A_WORKER, EdgeSession

TIMING = Timing(opening_s=10, beat_s=15, silence_s=40)
KEYS = [TaskKey(f"models.edgeai.io/default/m{n}") for n in range(4)]
KEY = KEYS[0]
UID = Uid("u1")
TASK = Desired(UID, 1, b"\x80")
WORKER = WorkerName("w")


def edge(held: dict[TaskKey, wire.TaskVersion] | None = None, epoch: int = 0) -> EdgeSession:
    return EdgeSession(now=0, timing=TIMING, instance="i", tasks=held or {}, epoch=epoch)


def cloud() -> CloudSession:
    return CloudSession(now=0, timing=TIMING)


def carry(sender: Session, receiver: Session, now: float = 0) -> list[msgspec.Struct]:
    """Deliver all that `sender` has to send; the receiver's events."""
    return [event for data in sender.data_to_send(now) for event in receiver.receive(data, now)]


def opened(
    desired: dict[TaskKey, Desired] | None = None,
    held: dict[TaskKey, wire.TaskVersion] | None = None,
) -> tuple[CloudSession, EdgeSession, list[msgspec.Struct]]:
    """Both ends after the handshake, and what the edge was told in it."""
    gm, lc = cloud(), edge(held)
    carry(lc, gm)
    gm.welcome(epoch=1, session="s", desired=desired or {})
    return gm, lc, carry(gm, lc)


def reported(events: Sequence[msgspec.Struct]) -> list[wire.Report]:
    return [event for event in events if isinstance(event, wire.Report)]


def names(events: Sequence[msgspec.Struct]) -> list[str]:
    return [type(event).__name__ for event in events]


# ---- the handshake --------------------------------------------------------------------------


def test_hello_tells_what_is_held() -> None:
    gm, lc = cloud(), edge({KEY: wire.TaskVersion(UID, 3)})
    assert carry(lc, gm) == [wire.Hello([1], "i", {KEY: wire.TaskVersion(UID, 3)})]
    assert gm.version == 1


NEGOTIATED = {
    "a newer edge": ((1,), (1, 2), 1),
    "an older edge": ((1, 2), (1,), 1),
    "both newer": ((1, 2), (1, 2), 2),
    "the oldest was dropped": ((2, 3), (1, 2), 2),
    "in any order": ((2, 1), (2, 1), 2),
}


@pytest.mark.parametrize(("ours", "offered", "agreed"), NEGOTIATED.values(), ids=NEGOTIATED)
def test_the_newest_common_version_is_chosen(
    monkeypatch: pytest.MonkeyPatch,
    ours: tuple[int, ...],
    offered: tuple[int, ...],
    agreed: int,
) -> None:
    monkeypatch.setattr(wire, "VERSIONS", offered)
    lc = edge()
    hello = lc.data_to_send(0)
    monkeypatch.setattr(wire, "VERSIONS", ours)
    gm = cloud()
    gm.receive(b"".join(hello), 0)
    gm.welcome(epoch=5, session="s", desired={})
    monkeypatch.setattr(wire, "VERSIONS", offered)
    assert carry(gm, lc)[0] == wire.Welcome(agreed, 5, "s")
    assert gm.version == lc.version == agreed


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ({}, ["Welcome", "Assign", "Synced"]),
        ({KEY: wire.TaskVersion(UID, 1)}, ["Welcome", "Synced"]),
        ({KEY: wire.TaskVersion(UID, 0)}, ["Welcome", "Assign", "Synced"]),
        ({KEY: wire.TaskVersion(UID, 2)}, ["Welcome", "Synced"]),  # this replica's cache is behind
        ({KEY: wire.TaskVersion("old", 9)}, ["Welcome", "Assign", "Synced"]),  # re-created
    ],
    ids=["lacks it", "holds it", "holds an older one", "holds a newer one", "another uid"],
)
def test_only_the_difference_is_sent(
    held: dict[TaskKey, wire.TaskVersion], expected: list[str]
) -> None:
    _, _, events = opened({KEY: TASK}, held)
    assert names(events) == expected


def test_synced_names_the_whole_desired_set() -> None:
    _, _, events = opened(
        {KEY: TASK}, {KEY: wire.TaskVersion(UID, 1), KEYS[1]: wire.TaskVersion(UID, 1)}
    )
    assert events[-1] == wire.Synced(1, [KEY])


def test_acknowledged_synced_says_so_and_forgets_the_rest() -> None:
    gm, lc, events = opened({}, {KEY: wire.TaskVersion(UID, 1)})
    assert isinstance(events[-1], wire.Synced)
    lc.acknowledge(events[-1].seq)
    assert carry(lc, gm) == [EdgeSynced()]
    assert gm.task_versions == {}


@pytest.mark.parametrize(
    ("ours", "offered", "older"),
    [((1, 2), (4, 3), "GlobalManager"), ((3, 4), (2, 1), "LocalController")],
)
def test_without_a_common_version_both_are_named_and_which_to_upgrade(
    monkeypatch: pytest.MonkeyPatch, ours: tuple[int, ...], offered: tuple[int, ...], older: str
) -> None:
    monkeypatch.setattr(wire, "VERSIONS", ours)
    gm = cloud()
    (hello,) = wire.encode(wire.Hello(list(offered), "i", {}))
    (event,) = gm.receive(hello, 0)
    assert event == Closed(
        wire.Close.PROTOCOL,
        f"no common protocol version: LocalController {sorted(offered)}, "
        f"GlobalManager {list(ours)}; upgrade the {older}",
    )
    assert len(event.reason) <= 123, "the edge is told all of it in the close frame"


def test_version_that_was_not_offered_is_refused() -> None:
    (welcome,) = wire.encode(wire.Welcome(2, 1, "s"))
    (event,) = edge().receive(welcome, 0)
    assert isinstance(event, Closed)
    assert "version 2" in event.reason


@pytest.mark.parametrize(("epoch", "ok"), [(4, False), (5, True), (6, True)])
def test_deposed_global_manager_is_refused(epoch: int, ok: bool) -> None:
    lc = edge(epoch=5)
    (welcome,) = wire.encode(wire.Welcome(1, epoch, "s"))
    (event,) = lc.receive(welcome, 0)
    assert event == wire.Welcome(1, epoch, "s") if ok else isinstance(event, Closed)
    if isinstance(event, Closed):
        assert event.code == wire.Close.STALE_EPOCH


# ---- assignments ----------------------------------------------------------------------------


def test_acknowledged_assignment_is_held() -> None:
    gm, lc, events = opened({KEY: TASK})
    assert events[1] == wire.Assign(1, KEY, UID, 1, b"\x80")
    lc.acknowledge(1)
    assert carry(lc, gm) == [TaskAcked(KEY, UID, 1, "")]
    assert gm.task_versions == {KEY: wire.TaskVersion(UID, 1)}


def test_refused_assignment_is_not_held_and_not_repeated() -> None:
    gm, lc, _ = opened({KEY: TASK})
    lc.acknowledge(1, refusal="ledger is full")
    assert carry(lc, gm) == [TaskAcked(KEY, UID, 1, "ledger is full")]
    assert gm.task_versions == {}
    assert carry(gm, lc) == []


def test_versions_coalesce_while_one_is_unacknowledged() -> None:
    gm, lc, _ = opened({KEY: TASK})
    for version in (2, 3, 4):
        gm.desire(KEY, Desired(UID, version, b"\x80"))
    assert carry(gm, lc) == []
    lc.acknowledge(1)
    carry(lc, gm)
    assert carry(gm, lc) == [wire.Assign(3, KEY, UID, 4, b"\x80")]


def test_task_wanted_again_while_its_withdrawal_is_in_flight_is_sent_again() -> None:
    gm, lc, _ = opened({KEY: TASK}, {KEY: wire.TaskVersion(UID, 1)})
    gm.desire(KEY, None)
    (withdraw,) = carry(gm, lc)
    gm.desire(KEY, TASK)
    assert isinstance(withdraw, wire.Withdraw)
    lc.acknowledge(withdraw.seq)
    carry(lc, gm)
    assert names(carry(gm, lc)) == ["Assign"]


def test_task_wanted_again_before_its_withdrawal_was_sent_costs_nothing() -> None:
    gm, lc, _ = opened({KEY: TASK}, {KEY: wire.TaskVersion(UID, 1)})
    gm.desire(KEY, None)
    gm.desire(KEY, TASK)
    assert carry(gm, lc) == []


def test_task_wanted_again_while_synced_is_under_way_is_sent_again() -> None:
    gm, lc, events = opened({}, {KEY: wire.TaskVersion(UID, 1)})
    assert isinstance(events[-1], wire.Synced)
    gm.desire(KEY, TASK)
    lc.acknowledge(events[-1].seq)
    carry(lc, gm)
    assert names(carry(gm, lc)) == ["Assign"]


def test_synced_waits_until_the_whole_set_was_sent() -> None:
    desired = {TaskKey(f"models.edgeai.io/default/m{n}"): TASK for n in range(WINDOW + 10)}
    gm, lc, events = opened(desired)
    assert names(events) == ["Welcome"] + ["Assign"] * WINDOW
    for event in events[1:]:
        assert isinstance(event, wire.Assign)
        lc.acknowledge(event.seq)
    carry(lc, gm)
    assert names(carry(gm, lc)) == ["Assign"] * 10 + ["Synced"]


def test_what_the_edge_never_had_is_not_withdrawn() -> None:
    gm, lc, _ = opened()
    gm.desire(KEY, TASK)
    gm.desire(KEY, None)
    assert carry(gm, lc) == []


class ChannelMachine(RuleBasedStateMachine):
    """Whatever changes, is lost or reconnects: in the end the edge holds the desired set."""

    def __init__(self) -> None:
        super().__init__()
        self.desired: dict[TaskKey, Desired] = {}
        self.past: dict[TaskKey, Desired] = {}  # the newest of each key
        self.ledger: dict[TaskKey, wire.TaskVersion] = {}
        self.versions = 0
        self.connect()

    @rule()
    def connect(self) -> None:
        """A new connection; what was under way on the old one is lost."""
        self.gm, self.lc = cloud(), edge(dict(self.ledger))
        carry(self.lc, self.gm)
        self.gm.welcome(epoch=1, session="s", desired=dict(self.desired))

    @rule(key=st.sampled_from(KEYS), uid=st.sampled_from(["u1", "u2"]))
    def want(self, key: TaskKey, uid: str) -> None:
        self.versions += 1
        self.desired[key] = self.past[key] = Desired(Uid(uid), self.versions, b"\x80")
        self.gm.desire(key, self.desired[key])

    @rule(key=st.sampled_from(KEYS))
    def want_again(self, key: TaskKey) -> None:
        """What was wanted before, at the same version: a pod came back to its node."""
        if key in self.past:
            self.desired[key] = self.past[key]
            self.gm.desire(key, self.desired[key])

    @rule(key=st.sampled_from(KEYS))
    def unwant(self, key: TaskKey) -> None:
        self.desired.pop(key, None)
        self.gm.desire(key, None)

    @rule()
    def down(self) -> None:
        for event in carry(self.gm, self.lc):
            match event:
                case wire.Assign():
                    held = self.ledger.get(event.key)
                    assert held is None or held.uid != event.uid or held.version < event.version
                    self.ledger[event.key] = wire.TaskVersion(event.uid, event.version)
                    self.lc.acknowledge(event.seq)
                case wire.Withdraw():
                    held = self.ledger.get(event.key)
                    if held is not None and held.uid == event.uid:
                        del self.ledger[event.key]
                    self.lc.acknowledge(event.seq)
                case wire.Synced():
                    for key in self.ledger.keys() - set(event.keys):
                        del self.ledger[key]
                    self.lc.acknowledge(event.seq)

    @rule()
    def up(self) -> None:
        carry(self.lc, self.gm)

    def teardown(self) -> None:
        for _ in range(6):
            self.down()
            self.up()
        wanted = {
            key: wire.TaskVersion(task.uid, task.version) for key, task in self.desired.items()
        }
        assert self.ledger == wanted
        assert self.gm.task_versions == wanted


TestChannel = ChannelMachine.TestCase


# ---- reports --------------------------------------------------------------------------------


def outgoing(revision: int) -> Outgoing:
    return Outgoing(UID, WORKER, 1, revision, wire.pack(wire.ReportBody(phase="inference")))


def test_report_before_the_handshake_waits_for_it() -> None:
    gm, lc = cloud(), edge()
    lc.report(outgoing(1))
    assert names(carry(lc, gm)) == ["Hello"]
    gm.welcome(epoch=1, session="s", desired={})
    carry(gm, lc)
    assert names(carry(lc, gm)) == ["Report"]


def test_newest_report_is_sent_and_its_revision_acknowledged() -> None:
    gm, lc, _ = opened()
    for revision in (1, 2, 3):
        lc.report(outgoing(revision))
    (event,) = carry(lc, gm)
    assert isinstance(event, wire.Report)
    gm.acknowledge(event.seq)
    assert carry(gm, lc) == [ReportAcked(outgoing(3), "")]


def test_a_newer_report_does_not_wait_for_the_acknowledgement_of_an_older_one() -> None:
    """The GlobalManager, where reports wait for the API server, then writes the newest alone."""
    gm, lc, _ = opened()
    received = []
    for revision in range(1, REPORTS_OF_A_WORKER + 3):
        lc.report(outgoing(revision))
        received += carry(lc, gm, now=float(revision))
    assert names(received) == ["Report"] * REPORTS_OF_A_WORKER
    for event in received:
        assert isinstance(event, wire.Report)
        gm.acknowledge(event.seq)
    acknowledged = range(1, REPORTS_OF_A_WORKER + 1)
    assert carry(gm, lc) == [ReportAcked(outgoing(revision), "") for revision in acknowledged]
    (last,) = carry(lc, gm)
    assert isinstance(last, wire.Report)
    gm.acknowledge(last.seq)
    assert carry(gm, lc) == [ReportAcked(outgoing(REPORTS_OF_A_WORKER + 2), "")]


def test_reports_of_a_worker_that_wait_for_the_api_server_leave_the_node_with_gaps() -> None:
    gm, lc, _ = opened()
    sent: list[tuple[float, int]] = []
    for step in range(10):  # ten reports a second
        lc.report(outgoing(step + 1))
        now = step / 10
        sent += [(now, each.revision) for each in reported(carry(lc, gm, now=now))]
    assert sent == [(0.0, 1), (0.3, 4), (0.6, 7), (0.9, 10)]


def test_a_report_that_is_held_back_leaves_at_the_next_tick() -> None:
    gm, lc, _ = opened()
    for revision in (1, 2):
        lc.report(outgoing(revision))
        carry(lc, gm, now=1.0)
    at = lc.next_tick()
    assert at == 1.0 + GAP_S
    assert lc.tick(at) == []
    assert [each.revision for each in reported(carry(lc, gm, now=at))] == [2]
    assert lc.next_tick() > at


def test_a_report_that_is_held_back_leaves_with_the_acknowledgement_of_the_older_ones() -> None:
    gm, lc, _ = opened()
    events = []
    for revision in (1, 2):
        lc.report(outgoing(revision))
        events += reported(carry(lc, gm))
    (first,) = events
    gm.acknowledge(first.seq)
    carry(gm, lc)
    assert [each.revision for each in reported(carry(lc, gm))] == [2]
    lc.report(outgoing(3))
    assert carry(lc, gm, now=GAP_S / 2) == []
    (third,) = reported(carry(lc, gm, now=GAP_S))
    assert third.revision == 3


def test_a_worker_without_unacknowledged_reports_waits_for_no_gap() -> None:
    gm, lc, _ = opened()
    for revision in (1, 2, 3):
        lc.report(outgoing(revision))
        (event,) = reported(carry(lc, gm, now=revision / 100))
        gm.acknowledge(event.seq)
        carry(gm, lc)


def test_refusal_of_any_length_is_taken_by_the_other_side() -> None:
    gm, lc, _ = opened()
    for here, there in ((gm, lc), (lc, gm)):
        here.acknowledge(1, refusal="é" * 5000)
        carry(here, there)
        assert there.closed is None


def test_peer_that_ignores_the_window_is_cut() -> None:
    gm, _, _ = opened()
    event: msgspec.Struct | None = None
    for seq in range(1, MAX_UNACKNOWLEDGED_REPORTS + 2):
        (data,) = wire.encode(wire.Report(seq, UID, WORKER, 1, b"\x80"))
        (event,) = gm.receive(data, 0)
    assert isinstance(event, Closed)
    assert event.code == wire.Close.PROTOCOL


# ---- time -----------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [cloud, edge])
def test_stalled_handshake_is_cut(end: Callable[[], Session]) -> None:
    session = end()
    assert session.tick(9.9) == []
    assert session.next_tick() == 10
    (event,) = session.tick(10)
    assert isinstance(event, Closed)
    assert event.code == wire.Close.TIMEOUT


def test_idle_ends_beat_and_stay() -> None:
    gm, lc, _ = opened()
    now = 0.0
    while now < 300:
        now = min(gm.next_tick(), lc.next_tick())
        assert gm.tick(now) + lc.tick(now) == []
        carry(gm, lc, now)
        carry(lc, gm, now)
    assert gm.closed is None
    assert lc.closed is None


def test_an_idle_edge_answers_a_beat_at_once() -> None:
    gm, lc, _ = opened()
    carry(lc, gm)
    assert carry(gm, lc) == []
    gm.tick(15)
    carry(gm, lc, 15.02)
    assert lc.data_to_send(15.02) == wire.encode(wire.Beat())
    assert lc.next_tick() == 30.02


def test_an_edge_that_has_just_sent_something_answers_no_beat() -> None:
    gm, lc, _ = opened()
    carry(lc, gm)
    lc.acknowledge(1)
    carry(lc, gm, 14)
    gm.tick(15)
    carry(gm, lc, 15)
    assert lc.data_to_send(15) == []


def test_a_beat_may_go_early_and_the_end_of_a_silent_peer_may_not() -> None:
    gm, _, _ = opened()
    gm.data_to_send(0)
    assert gm.tick(14.7, early_s=0.2) == []
    assert gm.data_to_send(14.7) == []
    gm.tick(14.9, early_s=0.2)
    assert gm.data_to_send(14.9) == wire.encode(wire.Beat())
    assert gm.tick(39.9, early_s=0.2) == []
    assert gm.closed is None


def test_silent_peer_is_gone_after_the_deadline() -> None:
    gm, _, _ = opened()
    assert gm.tick(39.9) == []
    (event,) = gm.tick(40)
    assert event == Closed(wire.Close.TIMEOUT, "peer is silent")


# ---- broken peers ---------------------------------------------------------------------------

TO_CLOUD = [
    wire.Welcome(1, 1, "s"),
    wire.Assign(1, KEY, UID, 1, b""),
    wire.Withdraw(1, KEY, UID),
    wire.Synced(1, []),
    wire.Hello([1], "again", {}),
]
TO_EDGE = [wire.Hello([1], "i", {}), wire.Report(1, UID, WORKER, 1, b""), wire.Welcome(1, 1, "s")]


@pytest.mark.parametrize("frame", TO_CLOUD, ids=lambda frame: type(frame).__name__)
def test_frame_of_the_wrong_way_closes_the_cloud_end(frame: wire.AnyFrame) -> None:
    gm, _, _ = opened()
    (event,) = gm.receive(wire.encode(frame)[0], 0)
    assert isinstance(event, Closed)
    assert f"unexpected {type(frame).__name__}" in event.reason


@pytest.mark.parametrize("frame", TO_EDGE, ids=lambda frame: type(frame).__name__)
def test_frame_of_the_wrong_way_closes_the_edge_end(frame: wire.AnyFrame) -> None:
    _, lc, _ = opened()
    (event,) = lc.receive(wire.encode(frame)[0], 0)
    assert isinstance(event, Closed)


def test_anything_before_hello_closes() -> None:
    (event,) = cloud().receive(wire.encode(wire.Beat())[0], 0)
    assert isinstance(event, Closed)


def test_after_closing_nothing_is_said_or_heard() -> None:
    gm, _, _ = opened()
    gm.acknowledge(1)
    gm.close(wire.Close.REPLACED, "a newer session")
    assert gm.data_to_send(0) == []
    assert gm.receive(wire.encode(wire.Beat())[0], 0) == []
    gm.desire(KEY, TASK)
    assert gm.data_to_send(0) == []
    assert gm.tick(1000) == []
    assert gm.close(wire.Close.NORMAL, "again").code == wire.Close.REPLACED


@pytest.mark.parametrize("frame", [*TO_CLOUD, *TO_EDGE, wire.Ack(1), wire.Beat()])
def test_truncation_at_every_byte_closes_and_nothing_else(frame: wire.AnyFrame) -> None:
    (data,) = wire.encode(frame)
    for cut in range(len(data)):
        gm, lc, _ = opened({KEY: TASK})
        for session in (gm, lc):
            (event,) = session.receive(data[:cut], 0)
            assert isinstance(event, Closed)
        assert gm.task_versions == {}


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=64), max_size=5))
def test_garbage_never_raises(messages: list[bytes]) -> None:
    gm, lc, _ = opened({KEY: TASK})
    for data in messages:
        gm.receive(data, 0)
        lc.receive(data, 0)


# ---- bounds ---------------------------------------------------------------------------------


def long_keys(count: int) -> list[TaskKey]:
    name, namespace = "n" * 253, "s" * 63
    return [TaskKey(f"models.edgeai.io/{namespace}/{name}-{number}") for number in range(count)]


def test_a_node_may_hold_12_400_tasks_with_long_names() -> None:
    keys, its_uid = long_keys(12_400), Uid("5a9c" * 9)
    gone = TaskKey("models.edgeai.io/default/gone")
    held = {key: wire.TaskVersion(its_uid, 1) for key in (*keys, gone)}
    desired = {key: Desired(its_uid, 1, b"\x80") for key in keys}
    gm, lc, events = opened(desired, held)
    assert gm.task_versions.keys() == {*keys, gone}
    (synced,) = (event for event in events if isinstance(event, wire.Synced))
    assert sorted(synced.keys) == sorted(keys)
    lc.acknowledge(synced.seq)
    carry(lc, gm)
    assert gm.task_versions.keys() == set(keys)


def test_a_set_that_fits_into_one_message_needs_no_parts() -> None:
    """So a release that knows no parts goes on as before."""
    held = {
        TaskKey(f"models.edgeai.io/default/m{n}"): wire.TaskVersion(UID, 1) for n in range(20_000)
    }
    assembler = wire.Assembler()
    frames = [assembler.feed(data) for data in edge(held).data_to_send(0)]
    assert [type(frame) for frame in frames if frame is not None] == [wire.Hello]


def test_a_hello_of_many_tiny_entries_costs_little_memory() -> None:
    entries = {TaskKey(f"{n:x}"): wire.TaskVersion("", 0) for n in range(300_000)}
    data = wire.pack({"frame": "hello", "versions": [1], "instance": "i", "held": entries})
    chunks = [wire.encode(each)[0] for each in wire.split(data, wire.CHUNK_BYTES)]
    del entries, data
    gm = cloud()
    tracemalloc.start()
    try:
        events = [event for chunk in chunks for event in gm.receive(chunk, 0)]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [type(event) for event in events] == [Closed]
    assert peak_bytes < 20 * 1024 * 1024


def test_what_a_node_says_it_holds_is_bounded_over_all_parts() -> None:
    gm = cloud()
    for number in range(100):
        part = {TaskKey(f"{number}-{n}-{'x' * 900}"): wire.TaskVersion(UID, 1) for n in range(250)}
        (data,) = wire.encode(wire.HeldPart(part))
        if events := gm.receive(data, 0):
            break
    (closed,) = events
    assert isinstance(closed, Closed)
    assert (closed.code, number < 60) == (wire.Close.TOO_BIG, True)
