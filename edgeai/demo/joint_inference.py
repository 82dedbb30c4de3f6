"""`edgeai demo joint-inference`: a whole edgeai on this machine, real images, and a table.

Starts a local cluster with a GlobalManager and two LocalControllers, trains both models, applies
the manifests of examples/joint_inference, shows the stream while it runs, and ends with edge
only / joint / cloud only side by side and the CR as the API holds it. The last line on stdout is
one JSON object. Everything that was started has ended then, unless `keep` says otherwise.
"""

import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from common.errors import EdgeAIError
from edgeai import environment, interrupts
from edgeai.api import Api, Object, collection_of, path_of, wait_until
from edgeai.environment import Environment
from examples.joint_inference import train
from examples.joint_inference.manifests import Placement, objects

NAMESPACE: Final = "default"
SERVICE: Final = "digits"
EDGE_NODE: Final = "edge0"
STATE: Final = "state"  # of the cluster, in the demo's directory
SILENCE_S: Final = 60.0  # the worker prints far more often; then something is broken
STREAM_RATE: Final = 120.0  # images per second; slow enough to watch
CLOUD_LATENCY_MS: Final = 5.0  # stands for the way to a cloud that is not on this machine


class Outcome(msgspec.Struct, frozen=True):
    """The last line on stdout. Accuracies and ratio in 0..1, the rest are numbers of images."""

    samples: int
    edge_accuracy: float
    joint_accuracy: float
    cloud_accuracy: float
    upload_ratio: float
    worker_upload_count: int
    status_upload_count: int


class DemoFailed(EdgeAIError):
    """A step of the demo did not do what it shows."""


def run(console: Console, *, keep: bool = False) -> int:
    """Returns: exit status, 0 only if every step happened and nothing was left behind"""
    directory = Path(tempfile.mkdtemp(prefix="edgeai-demo-"))
    try:
        outcome = _story(console, directory, keep)
    except Exception as error:
        console.print(f"[red]The demo failed:[/] {escape(str(error) or repr(error))}")
        _print_logs(console, directory)
        _remove(directory)
        if isinstance(error, EdgeAIError):
            return 1
        raise
    except BaseException:
        with interrupts.held_back():
            console.print("The demo was interrupted; stopping what it started")
            _remove(directory)
        raise
    if not keep:
        _remove(directory)
    sys.stdout.flush()
    console.file.flush()
    print(msgspec.json.encode(outcome).decode(), flush=True)
    return 0


def _remove(directory: Path) -> None:
    with interrupts.held_back():
        environment.down(directory / STATE)
        shutil.rmtree(directory)


def _story(console: Console, directory: Path, keep: bool) -> Outcome:
    console.print(Panel.fit("[bold]Joint inference[/]: a small model at the edge, a large one in "
                            "the cloud for the hard samples"))  # fmt: skip
    running, files = _prepare(console, directory)
    service = _apply(console, running, files)
    result = _watch_stream(console, running, service, files)
    held = _wait_for_count(running.api, service, result["worker_upload_count"])
    console.print(_as_the_api_holds_it(held))
    console.print(comparison(result))
    _delete(console, running.api, service)
    if keep:
        console.print(f"Left running: export KUBECONFIG={running.kubeconfig}")
        console.print(f"  edgeai status -w --state-dir {running.state_dir}")
        console.print(f"  edgeai down --state-dir {running.state_dir} && rm -r {directory}")
    else:
        _end(console, running.state_dir)
    return Outcome(
        status_upload_count=held["status"]["uploadCount"],
        **{
            field: result[field]
            for field in Outcome.__struct_fields__
            if field != "status_upload_count"
        },
    )


def _prepare(console: Console, directory: Path) -> tuple[Environment, train.Files]:
    """The cluster starts while the models are trained."""
    with (
        console.status("starting a cluster of cloud0, edge0, edge1; training both models"),
        ThreadPoolExecutor(1) as pool,
    ):
        training = pool.submit(train.train, directory / "files")
        running = environment.up(directory / STATE)
        files = training.result()
    console.print("[green]✓[/] GlobalManager in the cloud, LocalControllers on edge0 and edge1")
    console.print("[green]✓[/] models trained on scikit-learn's handwritten digits")
    return running, files


def _apply(console: Console, running: Environment, files: train.Files) -> Object:
    """Apply the example's manifests. Returns: the JointInferenceService as it was applied"""
    placement = Placement(
        files=files.dataset.parent,
        python=Path(sys.executable),
        checkout=Path(train.__file__).parents[2],
        edge_node=EDGE_NODE,
        cloud_node=environment.CLOUD,
        namespace=NAMESPACE,
        cloud_latency_ms=CLOUD_LATENCY_MS,
        stream_rate=STREAM_RATE,
    )
    applied = [running.api.apply(object_) for object_ in objects(placement)]
    names = ", ".join(f"{o['kind']} {o['metadata']['name']}" for o in applied)
    console.print(f"[green]✓[/] applied {names}")
    return applied[-1]


def _watch_stream(
    console: Console, running: Environment, service: Object, files: train.Files
) -> dict[str, Any]:
    """Show the worker's progress, and what the CR says of it, until it prints its result."""
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
                told = f"uploadCount {'-' if count is None else count}"
                progress.update(bar, completed=event["seen"], **_figures(event, told))
    raise DemoFailed("the edge worker ended before it had a result")


def _figures(event: dict[str, Any], told: str) -> dict[str, Any]:
    """Columns of the progress bar."""
    seen = event.get("seen", 0)
    return {
        "hard": event.get("hard", 0),
        "uploaded": event.get("uploaded", 0),
        "accuracy": f"{event['correct'] / seen:.3f}" if seen else "-",
        "told": told,
    }


def upload_count(api: Api, service: Object) -> int | None:
    """What the CR says, None while it says nothing."""
    status = api.get(path_of(service)).get("status") or {}
    count: int | None = status.get("uploadCount")
    return count


def edge_pod(api: Api) -> str:
    """Name of the edge worker's pod, once it runs."""
    selector = f"edgeai.io/name={SERVICE},edgeai.io/role=edge"
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={selector}"
    names: list[str] = []

    def missing() -> str:
        pods = api.get(path)["items"]
        names[:] = [p["metadata"]["name"] for p in pods if p["status"].get("phase") == "Running"]
        return "" if names else "no edge pod runs"

    wait_until("start of the edge worker", missing, timeout_s=60)
    return names[0]


def worker_events(api: Api, pod: str) -> Iterator[dict[str, Any]]:
    """The JSON lines that the edge worker prints, among what else it logs."""
    for line in api.follow_log(NAMESPACE, pod, silence_s=SILENCE_S):
        with contextlib.suppress(msgspec.DecodeError):
            event = msgspec.json.decode(line)
            if isinstance(event, dict) and "event" in event:
                yield event


def _wait_for_count(api: Api, service: Object, uploaded: int) -> Object:
    """The CR, once its status counts what the worker counted."""
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
    """Edge only, joint and cloud only side by side."""
    table = Table(
        title="why it is worth it",
        caption=f"{result['samples']} held-out images; the cloud worker adds "
        f"{result['simulated_cloud_latency_ms']:g} ms to each answer, for the way to a real cloud",
    )
    table.add_column("")
    for name in ("accuracy", "mean latency", "p95 latency", "uploaded"):
        table.add_column(name, justify="right")
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


def _as_the_api_holds_it(service: Object) -> Panel:
    shown = {
        "metadata": {k: service["metadata"][k] for k in ("namespace", "name", "generation")},
        "status": service["status"],
    }
    text = yaml.safe_dump(shown, sort_keys=False)
    title = f"{service['kind']}.{service['apiVersion']}, as the API holds it"
    return Panel(Syntax(text, "yaml", background_color="default"), title=title)


def _delete(console: Console, api: Api, service: Object) -> None:
    """Delete the CR; its Deployments, Service and pods go with it."""
    api.delete(path_of(service))
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=edgeai.io/name={SERVICE}"

    def left() -> str:
        items = api.get(pods)["items"]
        if api.find(path_of(service)) is not None:
            items.append(service)
        return ", ".join(item["metadata"]["name"] for item in items)

    wait_until(f"end of what {collection_of(service)} had", left, timeout_s=30)
    console.print("[green]✓[/] deleted; its workers have ended")


def _end(console: Console, state_dir: Path) -> None:
    environment.down(state_dir)
    if state_dir.exists():
        raise DemoFailed(f"{state_dir} was not removed")
    console.print("[green]✓[/] everything that was started has ended")


def _print_logs(console: Console, directory: Path) -> None:
    """The end of the logs of what may have caused a failure."""
    for log in sorted(directory.rglob("*.log")):
        with contextlib.suppress(OSError):
            tail = log.read_text(errors="replace").splitlines()[-10:]
            console.print(Text(f"{log.relative_to(directory)}:", style="dim"))
            console.print(*tail, sep="\n", markup=False)
