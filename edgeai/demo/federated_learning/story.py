"""`edgeai demo federated-learning`: three edges learn ten digits together, despite two faults.

The demo starts a local cluster with a GlobalManager and three LocalControllers, and applies
federated_learning.yaml. While the demo shows the rounds of the job, it kills one
trainer and cuts the network of another edge. At the end the demo compares the models of each edge
alone, the federated model and a centralised model.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from rich.console import Group
from rich.table import Table
from rich.text import Text

from edgeai.cli import system
from edgeai.cli.api import Api, Object
from edgeai.demo import stage
from edgeai.demo.digits import CLASSES
from edgeai.demo.faults import EdgeLine, Fault, Status, cut, kill, round_of
from edgeai.demo.federated_learning import data
from edgeai.demo.federated_learning.aggregator import ROUNDS
from edgeai.demo.federated_learning.compare import Figures, compare
from edgeai.demo.federated_learning.data import Part
from edgeai.demo.federated_learning.files import EDGES, model_file
from edgeai.demo.federated_learning.manifests import Placement, objects
from edgeai.demo.stage import NAMESPACE, DemoFailed, Look, Stage

JOB: Final = "digits"
TRAINING_S: Final = 0.25  # length of a round's training, slow enough for a user to watch
GONE_AFTER_S: Final = 3.0
KILLED, CUT_OFF = 1, 2  # numbers of the edges that get a fault
KILL_AT, CUT_AT = 10, 20  # rounds in which the faults begin


class Outcome(msgspec.Struct, frozen=True):
    """What the demo has found. All accuracies are in 0..1, measured on all held-out images."""

    rounds: int
    local_accuracy: list[float]
    """Accuracy of the model that each edge trains alone."""
    federated_accuracy: float
    centralised_accuracy: float
    bytes_per_round: int
    """Bytes of weights that one trainer sends and receives in a round."""
    recovered_faults: int
    transports: list[str]
    """How the trainers reached the aggregator: direct, relay."""


def story(on: Stage, *, isolated_edges: bool) -> Outcome:
    """Args: isolated_edges: they reach the edge port of the GlobalManager and nothing else"""
    on.console.print(
        "[bold]Federated learning[/]: three edges learn ten digits "
        "together, and no image leaves its edge"
    )
    with EdgeLine(aggregator=f"{JOB}-aggregation") as line:
        running, parts = stage.start(
            on,
            data.write,
            "dividing the images",
            edges=EDGES,
            are_edges_isolated=isolated_edges,
            tuning=line.tuning(EDGES[CUT_OFF]),
            on_api=line.lead_to_cloud_of,
        )
        on.detail(images(parts))
        # An isolated trainer calls the aggregator through its LocalController, which uses `line`.
        laid = None if isolated_edges else line
        job = stage.apply(on, running, _manifests(on, laid))
        killed, cut_off = f"{JOB}-train-{KILLED}", f"{JOB}-train-{CUT_OFF}"
        faults = [
            Fault(killed, kill(running.api, killed, at_round=KILL_AT)),
            Fault(cut_off, cut(line, cut_off, at_round=CUT_AT)),
        ]
        object_ = _watch(on, running.api, job, faults)
        figures = compare(parts, model_file(on.files))
        on.detail(stage.as_the_api_holds_it(object_, without=("workers", "conditions")))
        on.console.print(comparison(figures, parts))
        stage.end(on, running, job)
    return Outcome(
        rounds=object_["status"]["round"],
        bytes_per_round=_bytes_per_round(object_["status"]),
        recovered_faults=sum(fault.is_recovered for fault in faults),
        transports=stage.transports_of(object_),
        **msgspec.structs.asdict(figures),
    )


def _manifests(on: Stage, line: EdgeLine | None) -> list[Object]:
    """The job comes last. Args: line: one trainer calls the aggregator through it"""
    placement = Placement(
        files=on.files,
        cloud_node=system.CLOUD,
        namespace=NAMESPACE,
        gone_after_seconds=GONE_AFTER_S,
        training_seconds=TRAINING_S,
    )
    manifests = objects(placement)
    if line is not None:
        line.lay_to(manifests[-1]["spec"]["trainingWorkers"][CUT_OFF])
    return manifests


class _Course:
    """The accuracy of each round that the demo has seen."""

    def __init__(self) -> None:
        self._by_round: dict[int, float] = {}

    def note(self, status: Status) -> None:
        metrics = {entry["key"]: entry["value"] for entry in status.get("metrics") or ()}
        if "accuracy" in metrics:
            self._by_round[round_of(status)] = float(metrics["accuracy"])

    def __str__(self) -> str:
        """A bar for each round. One without a known accuracy repeats the bar before."""
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


def _watch(on: Stage, api: Api, job: Object, faults: Sequence[Fault]) -> Object:
    """Show the job and run the faults, until the job has ended.

    Returns: the CR of the ended job
    Raises: DemoFailed when the job fails or gets stuck, or when a trainer did not recover
    """
    course = _Course()

    def look(object_: Object) -> Look:
        status = object_.get("status") or {}
        course.note(status)
        for fault in faults:
            fault.tell(status)
        return Look(_view(status, course, faults), progress=status)

    object_ = stage.watch(on, api, job, look)
    if object_["status"]["phase"] != "Succeeded":
        raise DemoFailed(f"the job failed: {object_['status'].get('conditions')}")
    for fault in faults:
        if not fault.is_recovered:
            raise DemoFailed(f"{fault.worker} did not come back: {fault.state}")
    return object_


def _view(status: Status, course: _Course, faults: Sequence[Fault]) -> Group:
    head = Text.assemble(
        ("CR: ", "cyan"),
        f"phase {status.get('phase', '-'):<10} round {round_of(status):>2}",
        f"/{status.get('rounds') or '-'}  accuracy {course.latest}",
    )
    table = Table("TRAINER", "ROUND", "IMAGES", "ACCURACY", "SENT", "FAULT", box=None)
    befallen = {fault.worker: fault.state for fault in faults}
    for name, entry in sorted((status.get("workers") or {}).items()):
        table.add_row(name, *_figures(entry), befallen.get(name, ""))
    return Group(head, Text(str(course), style="green"), table)


def _figures(entry: dict[str, Any]) -> tuple[str, ...]:
    info = entry.get("taskInfo") or {}
    accuracy = info.get("metrics.accuracy")
    return (
        str(info.get("currentRound", "-")),
        str(info.get("sampleCount", "-")),
        "-" if accuracy is None else f"{accuracy:.3f}",
        f"{info.get('sentBytes', 0) / 1024:.0f} KiB",
    )


def images(parts: Mapping[str, Part]) -> Table:
    """A table with the number of images of each digit that each edge trains with."""
    table = stage.comparison_table("images to train with, by digit", *map(str, range(CLASSES)))
    for edge, part in parts.items():
        counts = [int((part.train.labels == digit).sum()) for digit in range(CLASSES)]
        most = max(counts) / 2
        cells = [f"[bold]{count}[/]" if count > most else f"[dim]{count}[/]" for count in counts]
        table.add_row(edge, *cells)
    return table


def comparison(figures: Figures, parts: Mapping[str, Part]) -> Table:
    """A table with the accuracy of each model: one of each edge alone, the federated model, and one
    that has learned from the images of all edges.
    """
    held_out = sum(len(part.held_out) for part in parts.values())
    table = stage.comparison_table(
        *("why it is worth it", "images", "accuracy", "images leave the edge"),
        caption=f"measured on all {held_out} held-out images; "
        "every model learned with the same number of passes over its own images",
    )
    for (edge, part), accuracy in zip(parts.items(), figures.local_accuracy, strict=True):
        table.add_row(f"{edge} alone", str(len(part.train)), f"{accuracy:.1%}", "none")
    everything = str(sum(len(part.train) for part in parts.values()))
    federated = f"{figures.federated_accuracy:.1%}"
    table.add_row("federated", everything, federated, "none", style="green")
    centralised = f"{figures.centralised_accuracy:.1%}"
    table.add_row("centralised", everything, centralised, "all")
    return table


def _bytes_per_round(status: Mapping[str, Any]) -> int:
    """Bytes of weights in each round, for the trainer without a fault."""
    info = status["workers"][f"{JOB}-train-0"]["taskInfo"]
    sent, received = int(info["sentBytes"]), int(info["receivedBytes"])
    return (sent + received) // ROUNDS
