"""What reports may take of an object's .status, in bytes as the API stores them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from globalmanager.contract import ReportRefused, WorkerReport
from globalmanager.kinds.shared import worker_status
from globalmanager.kinds.shared.stored import cut, fitting, stored_bytes
from globalmanager.kinds.shared.worker_status import WorkerFold
from tests.support.world import merged, patch_of, report

GREEDY = {f"{'<' * 60}{number}": "<" * 256 for number in range(32)}
ETCD_BYTES = 1536 * 1024  # largest request that etcd takes by default


def as_go_writes(value: Any) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


def folded(known: dict[str, Any], *reports: WorkerReport) -> dict[str, Any]:
    """The .status after these reports. A report that is refused changes nothing."""
    for one in reports:
        try:
            known = merged(known, patch_of(WorkerFold(known), one))
        except ReportRefused:
            continue
    return known


def greedy(number: int, *, node: str = "edge0") -> WorkerReport:
    return report(
        worker=f"worker-{number}",
        node=node,
        reason="<" * 1024,
        counts={f"{'&' * 60}{index}": 2**53 for index in range(32)},
        details=GREEDY,
    )


@given(st.text() | st.dictionaries(st.text(max_size=9), st.text(max_size=9) | st.integers()))
def test_sizes_are_those_of_gos_encoder(value: Any) -> None:
    assert stored_bytes(value) == len(as_go_writes(value))


@given(st.text(alphabet="a<é\n\u2028😀"), st.integers(0, 40))
def test_a_cut_text_is_the_longest_beginning_that_fits(text: str, max_bytes: int) -> None:
    kept = cut(text, max_bytes)
    assert text.startswith(kept)
    assert stored_bytes(kept) <= max_bytes + 2
    if kept != text:
        assert stored_bytes(text[: len(kept) + 1]) > max_bytes + 2


def test_what_does_not_fit_into_a_map_keeps_nothing_else_out() -> None:
    kept = fitting({"a": "x" * 50, "b": "<" * 20, "c": "y" * 20}, 100)
    assert kept == {"a": "x" * 50, "c": "y" * 20}
    assert stored_bytes(kept) <= 100


def test_one_workers_entry_is_bounded_in_bytes() -> None:
    entry = folded({}, greedy(0))["workers"]["worker-0"]
    assert stored_bytes(entry) < worker_status.MAX_WORKER_BYTES
    assert entry["details"], "what fits is kept"


def test_the_counts_of_former_nodes_are_bounded_and_not_lost() -> None:
    counts = [{f"{'<' * 50}{number}-{index}": 1 for index in range(32)} for number in range(60)]
    moves = [
        report(node=f"n{number}", ledger_id=f"on-{number}", counts={**counts[number], "seen": 1})
        for number in range(60)
    ]
    known = folded({}, *moves)
    assert stored_bytes(known) < worker_status.MAX_WORKER_BYTES
    plain = [
        report(node=f"n{n}", ledger_id=f"on-{n}", counts={"seen": 2, "uploaded": 1})
        for n in range(60)
    ]
    known = folded({}, *plain)
    assert (worker_status.total(known, "seen"), worker_status.total(known, "uploaded")) == (120, 60)


def test_the_reports_of_one_node_do_not_fill_an_object() -> None:
    known = folded({}, *(greedy(number) for number in range(100)))
    assert len(as_go_writes(known)) <= worker_status.MAX_NODE_BYTES
    # Another node's worker of the same object is heard, with all that it says.
    other = report(worker="neighbour", node="edge1", counts={"seen": 1}, details={"note": "so"})
    entry = folded(known, other)["workers"]["neighbour"]
    assert (entry["taskInfo"], entry["details"]) == ({"seen": 1}, {"note": "so"})


def test_the_reports_of_all_nodes_leave_room_in_the_object() -> None:
    everything = [greedy(node * 10 + n, node=f"n{node}") for node in range(20) for n in range(10)]
    known = folded({}, *everything)
    assert len(as_go_writes(known)) < ETCD_BYTES / 2


def test_where_room_is_short_counts_come_before_texts() -> None:
    full = folded({}, *(greedy(n, node=f"n{n // 3}") for n in range(40)))
    late = report(worker="late", node="late", reason="so", counts={"seen": 3}, details=GREEDY)
    after = folded(full, late)
    assert after["workers"]["late"]["taskInfo"] == {"seen": 3}
    assert "details" not in after["workers"]["late"]
    assert not patch_of(WorkerFold(after), late)


def test_a_report_without_room_is_refused_and_a_smaller_one_of_the_same_worker_is_taken() -> None:
    full = folded({}, *(greedy(number) for number in range(100)))
    with pytest.raises(ReportRefused, match="of node edge0 have"):
        WorkerFold(full).add(greedy(2001))
    ended = report(worker="worker-0", node="edge0", status="completed")
    assert folded(full, ended)["workers"]["worker-0"]["status"] == "completed"


def test_more_workers_than_one_object_holds_are_refused() -> None:
    full: dict[str, Any] = {
        "workers": {f"w{index}": {} for index in range(worker_status.MAX_WORKERS)}
    }
    with pytest.raises(ReportRefused, match="has 2000 workers"):
        WorkerFold(full).add(report(worker="one-more"))
