"""`edgeai demo joint-inference`: joint inference on real images, on this machine.

The demo starts a local cluster with a GlobalManager and two LocalControllers, trains both models
and applies joint_inference.yaml. The demo shows the progress of the edge
worker. At the end the demo compares the edge model alone, joint inference and the cloud model
alone, and shows the CR from the API.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from edgeai.cli import system
from edgeai.cli.api import Api, Object, path_of, wait_until
from edgeai.cli.environment import Environment
from edgeai.demo import stage
from edgeai.demo.joint_inference import train
from edgeai.demo.joint_inference.manifests import Placement, objects
from edgeai.demo.stage import NAMESPACE, DemoFailed, Stage

SERVICE: Final = "digits"
EDGE_NODE: Final = "edge0"
SILENCE_S: Final = 60.0  # the worker prints far more often, so such a silence is a failure
STREAM_RATE: Final = 120.0  # images per second, slow enough for a user to watch
CLOUD_LATENCY_MS: Final = 5.0  # simulates the network delay to a remote cloud


class Outcome(msgspec.Struct, frozen=True):
    """What the demo has found. Accuracies and ratio are in 0..1. Other numbers count images."""

    samples: int
    edge_accuracy: float
    joint_accuracy: float
    cloud_accuracy: float
    upload_ratio: float
    worker_upload_count: int
    status_upload_count: int
    transports: list[str]
    """How the edge worker reached the cloud worker: direct, relay."""


def story(on: Stage, *, isolated_edges: bool) -> Outcome:
    """Args: isolated_edges: they reach the edge port of the GlobalManager and nothing else"""
    console = on.console
    console.print(
        "[bold]Joint inference[/]: a small model at the edge, a large one in "
        "the cloud for the hard samples"
    )
    running, files = stage.start(
        on, train.train, "training both models", are_edges_isolated=isolated_edges
    )
    on.tick("models trained on scikit-learn's handwritten digits")
    service = stage.apply(on, running, _manifests(files))
    result = _watch_stream(console, running, service, files)
    object_ = _wait_for_count(running.api, service, result["worker_upload_count"])
    on.detail(stage.as_the_api_holds_it(object_))
    console.print(comparison(result))
    stage.end(on, running, service)
    return Outcome(
        status_upload_count=object_["status"]["uploadCount"],
        transports=stage.transports_of(object_),
        **{field: result[field] for field in Outcome.__struct_fields__ if field in result},
    )


def _manifests(files: train.Files) -> list[Object]:
    """The manifests of the example. The JointInferenceService comes last."""
    placement = Placement(
        files=files.dataset.parent,
        edge_node=EDGE_NODE,
        cloud_node=system.CLOUD,
        namespace=NAMESPACE,
        cloud_latency_ms=CLOUD_LATENCY_MS,
        stream_rate=STREAM_RATE,
    )
    return objects(placement)


def _watch_stream(
    console: Console, running: Environment, service: Object, files: train.Files
) -> dict[str, Any]:
    """Show the progress of the edge worker and of the CR, until the worker prints its result."""
    progress = Progress(
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("hard {task.fields[hard]}  uploaded {task.fields[uploaded]}"),
        TextColumn("accuracy {task.fields[accuracy]}"),
        TextColumn("[cyan]CR: {task.fields[told]}"),
        console=console,
    )
    with files.dataset.open() as dataset:
        total = sum(1 for _ in dataset) - 1
    with progress:
        bar = progress.add_task("", total=total, **_figures({}, "waiting for the worker"))
        for event in worker_events(running.api, edge_pod(running.api)):
            if event["event"] == "result":
                return event
            if event["event"] == "progress":
                count = upload_count(running.api, service)
                caption = f"uploadCount {'-' if count is None else count}"
                progress.update(bar, completed=event["seen"], **_figures(event, caption))
    raise DemoFailed("the edge worker ended before it had a result")


def _figures(event: dict[str, Any], caption: str) -> dict[str, Any]:
    """The values in the columns of the progress bar."""
    samples = event.get("seen", 0)
    return {
        "hard": event.get("hard", 0),
        "uploaded": event.get("uploaded", 0),
        "accuracy": f"{event['correct'] / samples:.3f}" if samples else "-",
        "told": caption,
    }


def upload_count(api: Api, service: Object) -> int | None:
    """The number of uploaded images in the CR's status; None if the status has no number yet."""
    status = api.get(path_of(service)).get("status") or {}
    count: int | None = status.get("uploadCount")
    return count


def edge_pod(api: Api) -> str:
    """Wait until the edge worker's pod runs. Returns: name of the pod"""
    selector = f"edgeai.io/name={SERVICE},edgeai.io/role=edge"
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={selector}"
    names: list[str] = []

    def missing() -> str:
        pods = api.get(path)["items"]
        names[:] = [p["metadata"]["name"] for p in pods if p["status"].get("phase") == "Running"]
        return "" if names else "no edge pod runs"

    wait_until("start of the edge worker", missing, timeout_s=60)
    return names[0]


def worker_events(api: Api, pod: str) -> Iterator[stage.Event]:
    """What the edge worker tells, until it ends."""
    return stage.events(api.follow_log(NAMESPACE, pod, silence_s=SILENCE_S))


def _wait_for_count(api: Api, service: Object, uploaded: int) -> Object:
    """Wait until the status of the CR has the worker's count of uploads. Returns: the CR"""
    path = path_of(service)

    def differs() -> str:
        status = api.get(path).get("status") or {}
        count = status.get("uploadCount")
        if status.get("phase") != "Running":
            return f"phase is {status.get('phase')}"
        return "" if count == uploaded else f"status.uploadCount is {count}, not {uploaded}"

    wait_until("the count in the CR's status", differs, timeout_s=30)
    return api.get(path)


def comparison(result: dict[str, Any]) -> Table:
    """A table that compares the edge model alone, joint inference and the cloud model alone."""
    table = stage.comparison_table(
        *("why it is worth it", "accuracy", "mean latency", "p95 latency", "uploaded"),
        caption=f"{result['samples']} held-out images; the cloud worker adds "
        f"{result['simulated_cloud_latency_ms']:g} ms to each answer, for the way to a real cloud",
    )
    uploads = {"edge": 0.0, "joint": result["upload_ratio"], "cloud": 1.0}
    for name, label in (("edge", "edge only"), ("joint", "joint"), ("cloud", "cloud only")):
        latency = result["latency_ms"][name]
        table.add_row(
            label,
            f"{result[f'{name}_accuracy']:.1%}",
            f"{latency['mean']:.2f} ms",
            f"{latency['p95']:.2f} ms",
            f"{uploads[name]:.1%}",
            style="green" if name == "joint" else "",
        )
    return table
