"""Conditions, events and the folding of reports."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edgeai.api.status import MAX_MESSAGE_CHARS, Finding, Truth
from globalmanager.contract import Event, Severity, WorkerReport
from globalmanager.kinds.edge.model import KIND as MODEL
from globalmanager.kinds.shared import status, worker_status
from globalmanager.kinds.shared.worker_status import WorkerFold
from tests.support.world import NOW, World, job, merged, patch_of, report

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=12,
)


def world(**known: Any) -> World:
    return World(MODEL, job(status=known))


def condition(truth: str = "True", reason: str = "Valid", **more: Any) -> dict[str, Any]:
    known = {"type": "Accepted", "status": truth, "reason": reason, "message": "so"}
    return {**known, "lastTransitionTime": "2025-01-01T00:00:00Z", **more}


# ---- conditions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param([], "2026-01-02T03:04:05Z", id="new"),
        pytest.param([condition("False")], "2026-01-02T03:04:05Z", id="status changes"),
        pytest.param([condition("True")], "2025-01-01T00:00:00Z", id="status stays"),
        pytest.param(
            [condition("True", "Other")], "2025-01-01T00:00:00Z", id="only the reason changes"
        ),
        pytest.param(
            [condition("True", lastTransitionTime="soon")], "2026-01-02T03:04:05Z", id="no time"
        ),
        pytest.param("garbage", "2026-01-02T03:04:05Z", id="garbage"),
    ],
)
def test_transition_time_moves_with_the_status_only(known: Any, expected: str) -> None:
    observed = world(conditions=known).observed()
    (entry,) = status.conditions(observed, [status.accepted()], NOW)
    assert entry["lastTransitionTime"] == expected
    assert entry["observedGeneration"] == 1


def test_messages_are_bounded() -> None:
    finding = Finding("Accepted", Truth.FALSE, "InvalidSpec", "x" * 10_000)
    (entry,) = status.conditions(world().observed(), [finding], NOW)
    assert len(entry["message"]) == MAX_MESSAGE_CHARS


def test_an_unchanged_status_is_not_written() -> None:
    known = {"a": 1, "b": [2]}
    assert status.subtree(world(**known).observed(), {"a": 1, "gone": None}) is None
    assert status.subtree(world(**known).observed(), {"a": 2}) == {"a": 2}


@pytest.mark.parametrize(
    ("known", "finding", "severity"),
    [
        pytest.param([], ("True", "Valid"), None, id="true from the start"),
        pytest.param([], ("False", "Bad"), Severity.WARNING, id="false from the start"),
        pytest.param([condition("True")], ("False", "Bad"), Severity.WARNING, id="turned false"),
        pytest.param([condition("False", "Bad")], ("False", "Bad"), None, id="still false"),
        pytest.param(
            [condition("False", "Bad")], ("False", "Worse"), Severity.WARNING, id="new reason"
        ),
        pytest.param([condition("False")], ("True", "Valid"), Severity.NORMAL, id="recovered"),
        pytest.param([condition("True")], ("Unknown", "Who"), None, id="unknown"),
        pytest.param([condition("True")], ("False", "Starting"), None, id="normal course"),
    ],
)
def test_only_changes_make_events(
    known: Any, finding: tuple[str, str], severity: Severity | None
) -> None:
    truth, reason = finding
    found = Finding("Accepted", Truth(truth), reason, "text")
    expected = () if severity is None else (Event(severity, reason, "text"),)
    assert status.events(world(conditions=known).observed(), [found]) == expected


# ---- fold ---------------------------------------------------------------------------------------


def folded(known: dict[str, Any], *reports: WorkerReport) -> dict[str, Any]:
    """The .status after these reports."""
    for one in reports:
        known = merged(known, patch_of(WorkerFold(known), one))
    return known


def entry_of(*reports: WorkerReport) -> dict[str, Any]:
    entry: dict[str, Any] = folded({}, *reports)["workers"]["digits-edge"]
    return entry


def test_a_report_is_kept_whole() -> None:
    entry = entry_of(
        report(counts={"seen": 3}, details={"gpu": "no"}, observed_at="2026-01-01T00:00:00Z")
    )
    assert entry == {
        "node": "edge0",
        "instance": "ledger-1",
        "attempt": 1,
        "phase": "inference",
        "status": "running",
        "taskInfo": {"seen": 3},
        "details": {"gpu": "no"},
        "observedAt": "2026-01-01T00:00:00Z",
    }


FIRST = report(counts={"seen": 10, "hard": 4})
DONE = report(status="completed", counts={"seen": 12})


@pytest.mark.parametrize(
    ("known", "late"),
    [
        pytest.param(FIRST, FIRST, id="repeated"),
        pytest.param(
            report(observed_at="2026-01-01T00:00:00Z"),
            report(observed_at="2026-01-01T00:00:30Z"),
            id="only the clock moved",
        ),
        pytest.param(
            report(details={"updateTime": "1"}),
            report(details={"updateTime": "2"}),
            id="updateTime",
        ),
        pytest.param(report(attempt=2), report(attempt=1), id="lower attempt"),
        pytest.param(
            report(revision=2, counts={"seen": 9}),
            report(revision=1, counts={"seen": 1}),
            id="lower revision",
        ),
        pytest.param(DONE, report(counts={"seen": 13}), id="running after completed"),
        pytest.param(DONE, report(status="failed"), id="failed after completed"),
        pytest.param(report(status="failed"), DONE, id="completed after failed"),
    ],
)
def test_a_stale_or_repeated_report_changes_nothing(
    known: WorkerReport, late: WorkerReport
) -> None:
    assert not patch_of(WorkerFold(folded({}, known)), late)


def test_a_report_with_the_same_words_shuts_out_a_late_one_of_another_replica() -> None:
    known = folded({}, report(revision=5), report(revision=7))
    assert not patch_of(WorkerFold(known), report(revision=6, status="lost"))


@pytest.mark.parametrize(
    ("reports", "status_", "counts"),
    [
        pytest.param(
            [FIRST, report(counts={"seen": 20})], "running", {"seen": 20}, id="newer replaces"
        ),
        pytest.param(
            [DONE, report(attempt=2, counts={"seen": 1})], "running", {"seen": 1}, id="next attempt"
        ),
        pytest.param([report(status="lost"), FIRST], "running", {"seen": 10, "hard": 4}, id="back"),
        pytest.param(
            [FIRST, report(ledger_id="ledger-2", counts={"seen": 2, "uploaded": 1})],
            "running",
            {"seen": 10, "hard": 4, "uploaded": 1},
            id="another ledger takes no count back",
        ),
        pytest.param(
            [
                FIRST,
                report(ledger_id="ledger-2", counts={"seen": 2}),
                report(ledger_id="ledger-2", counts={"seen": 3}),
                report(ledger_id="ledger-2", counts={"seen": 11}),
            ],
            "running",
            {"seen": 11, "hard": 4},
            id="another ledger never does",
        ),
        pytest.param(
            [
                FIRST,
                report(ledger_id="ledger-2", counts={"seen": 2}),
                report(ledger_id="ledger-3", counts={"seen": 1}),
                report(ledger_id="ledger-3", counts={"seen": 3}),
            ],
            "running",
            {"seen": 10, "hard": 4},
            id="nor does a third",
        ),
        pytest.param(
            [report(attempt=7), report(ledger_id="ledger-2", attempt=1, status="failed")],
            "failed",
            None,
            id="another ledger counts attempts anew",
        ),
    ],
)
def test_a_newer_report_takes_effect(
    reports: list[WorkerReport], status_: str, counts: dict[str, int] | None
) -> None:
    entry = entry_of(*reports)
    assert entry["status"] == status_
    assert entry.get("taskInfo") == counts


A10 = report(node="a", ledger_id="on-a", counts={"uploaded": 10})
B3 = report(node="b", ledger_id="on-b", counts={"uploaded": 3})


@pytest.mark.parametrize(
    ("reports", "total"),
    [
        pytest.param([A10, B3], 13, id="moved"),
        pytest.param(
            [A10, B3, report(node="b", ledger_id="on-b", counts={"uploaded": 4})],
            14,
            id="goes on there",
        ),
        pytest.param(
            [A10, B3, report(node="a", ledger_id="on-a", attempt=2, counts={"uploaded": 12})],
            15,
            id="back, where the ledger has gone on",
        ),
        pytest.param(
            [A10, B3, report(node="a", ledger_id="new-on-a", counts={"uploaded": 2})],
            13,
            id="back, where the ledger was lost meanwhile",
        ),
        pytest.param(
            [A10, B3, report(node="b", ledger_id="new-on-b", counts={"uploaded": 1})],
            13,
            id="the ledger is lost after the move",
        ),
        pytest.param(
            [A10, B3, report(node="a", ledger_id="on-a", counts={"uploaded": 12}, is_former=True)],
            15,
            id="goes on at the former node",
        ),
        pytest.param(
            [A10, B3, report(node="a", ledger_id="new", counts={"uploaded": 2}, is_former=True)],
            13,
            id="the former node has lost its ledger",
        ),
        pytest.param(
            [report(node=f"n{i}", ledger_id=f"on-{i}", counts={"uploaded": 1}) for i in range(50)],
            50,
            id="moved often",
        ),
    ],
)
def test_a_worker_that_moves_keeps_its_counts(reports: list[WorkerReport], total: int) -> None:
    known = folded({}, *reports)
    assert worker_status.total(known, "uploaded") == total
    assert not patch_of(WorkerFold(known), reports[-1])
    assert len(json.dumps(known)) < 2048


def test_a_report_of_the_former_node_keeps_that_of_the_present_node() -> None:
    """Whichever of the two comes last. A worker whose end was reported reports no more."""
    ended = report(node="b", ledger_id="on-b", status="completed", counts={"uploaded": 3})
    late = report(
        node="a", ledger_id="on-a", attempt=5, counts={"uploaded": 12, "hard": 1}, is_former=True
    )
    entry = folded({}, A10, ended, late)["workers"]["digits-edge"]
    assert (entry["node"], entry["status"], entry["attempt"]) == ("b", "completed", 1)
    assert entry["taskInfo"] == {"uploaded": 3}
    assert entry["countedElsewhere"] == {"a": {"uploaded": 12, "hard": 1}}


def test_the_former_node_is_shown_until_the_present_one_reports() -> None:
    late = report(node="a", ledger_id="on-a", counts={"uploaded": 12}, is_former=True)
    assert folded({}, late)["workers"]["digits-edge"]["node"] == "a"
    entry = folded({}, A10, late)["workers"]["digits-edge"]
    assert (entry["node"], entry["taskInfo"]) == ("a", {"uploaded": 12})


def test_fields_of_a_newer_global_manager_are_kept() -> None:
    """After a rollback and an upgrade the newer release finds its fields as it left them."""
    newer = merged(
        folded({}, report(counts={"seen": 1}, details={"gpu": "no"})),
        {"workers": {"digits-edge": {"ofNewer": {"x": 1}}}, "ofNewer": "y"},
    )
    after = folded(newer, report(attempt=2, counts={"seen": 5}))
    assert after["ofNewer"] == "y"
    entry = after["workers"]["digits-edge"]
    assert (entry["ofNewer"], entry["taskInfo"]) == ({"x": 1}, {"seen": 5})
    assert "details" not in entry
    assert not patch_of(WorkerFold(after), report(attempt=2, counts={"seen": 5}))


def test_numbers_that_json_lacks_are_dropped() -> None:
    counts = {"nan": float("nan"), "inf": float("inf"), "big": 2**64, "seen": 1, "loss": -0.5}
    assert entry_of(report(counts=counts))["taskInfo"] == {"seen": 1, "loss": -0.5}


def test_an_entry_is_bounded_whatever_is_reported() -> None:
    many = {f"k{index}": 1 for index in range(5000)}
    texts = {f"k{index}" * 50: "x" * 9000 for index in range(5000)} | {"note": "x" * 9000}
    entry = entry_of(report(counts=many, details=texts, observed_at="x" * 9000))
    assert len(json.dumps(entry)) < 4096


@given(known=JSON, one=JSON)
@example(known=[], one={"ofANewerOne": {"x": None}})
def test_fold_is_total_and_settles(known: Any, one: Any) -> None:
    """Whatever .status holds, a report changes it once and a repeated report changes nothing."""
    garbage = {"workers": {"digits-edge": one}} if isinstance(known, list) else {"workers": known}
    new = report(attempt=10**9, ledger_id="new", counts={"seen": 1})
    after = folded(garbage, new)
    assert after["workers"]["digits-edge"]["node"] == "edge0"
    assert not patch_of(WorkerFold(after), new)


@given(JSON)
def test_total_is_total(known: Any) -> None:
    total = worker_status.total({"workers": {"a": {"taskInfo": {"seen": known}}}}, "seen")
    assert total is None or 0 <= total <= 2**53
    assert worker_status.total({"workers": known}, "seen") is None


def test_totals_add_up_over_workers() -> None:
    known = folded(
        {},
        report(worker="a", counts={"uploaded": 2}),
        report(worker="b", counts={"uploaded": 3.0}),
    )
    assert worker_status.total(known, "uploaded") == 5
