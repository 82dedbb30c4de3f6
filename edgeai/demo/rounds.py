"""The live view of a federated job: rounds and accuracy, from the status of the job's CR.

A trainer's report goes from the worker to the ledger of the edge, then to the GlobalManager, then
into the status.
"""

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from edgeai.cli.api import Api, Object
from edgeai.demo import stage
from edgeai.demo.faults import Fault, Status, round_of
from edgeai.demo.stage import DemoFailed, Look, Stage


class Course:
    """The accuracy of each round that the demo has seen."""

    def __init__(self) -> None:
        self._by_round: dict[int, float] = {}

    def note(self, status: Status) -> None:
        metrics = {entry["key"]: entry["value"] for entry in status.get("metrics") or ()}
        if "accuracy" in metrics:
            self._by_round[round_of(status)] = float(metrics["accuracy"])

    def __str__(self) -> str:
        """A bar chart with one character for each round. A higher bar means more accuracy.

        A round without a known accuracy repeats the bar of the previous round.
        """
        shares, last = [], 0.0
        for number in range(1, max(self._by_round, default=0) + 1):
            last = self._by_round.get(number, last)
            shares.append(last)
        return stage.bars(shares)

    @property
    def latest(self) -> str:
        if not self._by_round:
            return "-"
        return f"{self._by_round[max(self._by_round)]:.3f}"


def watch(on: Stage, api: Api, job: Object, faults: Sequence[Fault]) -> Object:
    """Show the job and run the faults, until the job has ended.

    Returns: the CR of the ended job
    Raises: DemoFailed when the job fails or gets stuck, or when a trainer did not recover
    """
    course = Course()

    def look(object_: Object) -> Look:
        status = object_.get("status") or {}
        course.note(status)
        for fault in faults:
            fault.tell(status)
        has_ended = status.get("phase") in ("Succeeded", "Failed")
        return Look(view(status, course, faults), progress=status, has_ended=has_ended)

    object_ = stage.watch(on, api, job, look)
    _require_good_end(object_["status"], faults)
    return object_


def _require_good_end(status: Status, faults: Sequence[Fault]) -> None:
    if status["phase"] != "Succeeded":
        raise DemoFailed(f"the job failed: {status.get('conditions')}")
    for fault in faults:
        if not fault.is_recovered:
            raise DemoFailed(f"{fault.worker} did not come back: {fault.state}")


def view(status: Status, course: Course, faults: Sequence[Fault]) -> Group:
    head = Text.assemble(
        ("CR: ", "cyan"),
        f"phase {status.get('phase', '-'):<10} round {round_of(status):>2}",
        f"/{status.get('rounds') or '-'}  accuracy {course.latest}",
    )
    table = Table("TRAINER", "ROUND", "IMAGES", "ACCURACY", "SENT", "FAULT", box=None)
    befallen = {fault.worker: fault.state for fault in faults}
    for name, entry in sorted((status.get("workers") or {}).items()):
        table.add_row(name, *_told(entry), befallen.get(name, ""))
    return Group(head, Text(str(course), style="green"), table)


def _told(entry: dict[str, Any]) -> tuple[str, ...]:
    info = entry.get("taskInfo") or {}
    accuracy = info.get("metrics.accuracy")
    return (
        str(info.get("currentRound", "-")),
        str(info.get("sampleCount", "-")),
        "-" if accuracy is None else f"{accuracy:.3f}",
        f"{info.get('sentBytes', 0) / 1024:.0f} KiB",
    )
