"""The common parts of all demos: a directory, an outcome in JSON, and a complete clean-up.

A demo tells its story on stdout in one screen, and its outcome in the last line. With `-o json` the
story goes to stderr, so that stdout has the outcome alone.

Each demo runs on a Stage. `perform` cleans up when the demo succeeds, fails or is interrupted.
"""

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import yaml
from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from edgeai.api.objects import LABEL_NAME
from edgeai.api.pod_state import node_of
from edgeai.api.pod_state import phase_of as phase_of_pod
from edgeai.cli import environment, interrupts, options, system
from edgeai.cli.api import Api, Object, collection_of, path_of, wait_until
from edgeai.cli.environment import Environment
from edgeai.cli.options import Output
from edgeai.errors import EdgeAIError
from edgeai.faults.summary import phase_of

T = TypeVar("T")
Event = dict[str, Any]
"""What a worker's program tells in a line of its log."""
NAMESPACE: Final = "default"
POLL_S: Final = 0.1
STILL_S: Final = 120.0
_BARS: Final = " ▁▂▃▄▅▆▇█"


class DemoFailed(EdgeAIError):
    """A step of the demo did not have the expected result."""


class Stage(msgspec.Struct, frozen=True):
    """The console and the directory of one demo. `keep`: it leaves everything running."""

    console: Console
    directory: Path
    keep: bool
    verbose: bool

    @property
    def state_dir(self) -> Path:
        """The state directory of the demo's cluster."""
        return self.directory / "state"

    @property
    def files(self) -> Path:
        """The directory with the input and output files of the workers."""
        return self.directory / "files"

    def tick(self, what: str) -> None:
        self.console.print(f"[green]✓[/] {what}")

    def detail(self, view: RenderableType) -> None:
        """Print what has no room on one screen, if the user wants it."""
        if self.verbose:
            self.console.print(view)


Story = Callable[[Stage], msgspec.Struct]


def console_for(output: Output) -> Console:
    """Where the story of a demo goes."""
    return Console(stderr=output is Output.JSON)


def perform(story: Story, output: Output, *, keep: bool = False, verbose: bool = False) -> int:
    """Run the steps of a demo and clean up. Print the demo's outcome at the end.

    Returns: exit status, 0 only if every step and the clean-up succeeded
    """
    console = console_for(output)
    stage = Stage(console, Path(tempfile.mkdtemp(prefix="edgeai-demo-")), keep, verbose)
    try:
        outcome = story(stage)
    except Exception as error:
        console.print(f"[red]The demo failed:[/] {escape(str(error) or repr(error))}")
        _print_logs(stage)
        _remove(stage)
        if isinstance(error, EdgeAIError):
            return 1
        raise
    except BaseException:
        with interrupts.held_back():
            console.print("The demo was interrupted; stopping what it started")
            _remove(stage)
        raise
    if not keep:
        _remove(stage)
    sys.stdout.flush()
    console.file.flush()
    options.print_json(outcome, is_line=output is not Output.JSON)
    return 0


def start(
    stage: Stage,
    write: Callable[[Path], T],
    task: str = "writing the images",
    *,
    edges: tuple[str, ...] = system.EDGES,
    **options: Any,
) -> tuple[Environment, T]:
    """Start a cluster. Meanwhile `write` writes the workers' input into the given directory.

    Args:
        task: what `write` does, for the user
        options: further arguments of environment.up
    Returns: the environment, and what `write` returns
    """
    nodes = ", ".join((system.CLOUD, *edges))
    with (
        stage.console.status(f"starting a cluster of {nodes}; {task}"),
        ThreadPoolExecutor(1) as pool,
    ):
        future = pool.submit(write, stage.files)
        running = environment.up(stage.state_dir, edges=edges, **options)
        written = future.result()
    stage.tick(f"GlobalManager in the cloud, LocalControllers on {', '.join(edges)}")
    return running, written


def apply(stage: Stage, running: Environment, objects: list[Object]) -> Object:
    """Apply the objects in this order. Returns: the last object, as the API returned it"""
    applied = [running.api.apply(object_) for object_ in objects]
    names = ", ".join(f"{o['kind']} {o['metadata']['name']}" for o in applied)
    stage.tick(f"applied {names}")
    return applied[-1]


class Look(NamedTuple):
    """What a demo sees of its job at one moment."""

    view: RenderableType
    progress: object
    """Any value. A job whose progress stays the same for STILL_S is stuck."""
    has_ended: bool = False
    """What the demo waits for, of an object without an end of its own."""


def watch(stage: Stage, api: Api, job: Object, look: Callable[[Object], Look]) -> Object:
    """Show the view of the job again and again, until the job has ended. Returns: its CR

    Raises: DemoFailed when the job gets stuck; the errors of `look`
    """
    path = path_of(job)
    changed_s, before = time.monotonic(), None
    with Live(console=stage.console, auto_refresh=False) as live:
        while True:
            object_ = api.get(path)
            view = look(object_)
            live.update(view.view, refresh=True)
            if view.has_ended or phase_of(object_.get("status")) in ("Succeeded", "Failed"):
                return object_
            if view.progress != before:
                changed_s, before = time.monotonic(), view.progress
            if time.monotonic() - changed_s > STILL_S:
                status = object_.get("status")
                raise DemoFailed(f"the job has reported nothing new for {STILL_S:g} s: {status}")
            time.sleep(POLL_S)


def bars(shares: Iterable[float]) -> str:
    """A bar chart with one character for each share of 0..1. A higher bar means a larger share."""
    return "".join(_BARS[round(share * (len(_BARS) - 1))] for share in shares)


def as_the_api_holds_it(object_: Object, *, without: Collection[str] = ()) -> Panel:
    """Its metadata and status. Args: without: fields of the status that the panel leaves out"""
    status = {name: value for name, value in object_["status"].items() if name not in without}
    summary = {
        "metadata": {k: object_["metadata"][k] for k in ("namespace", "name", "generation")},
        "status": status,
    }
    text = yaml.safe_dump(summary, sort_keys=False)
    title = f"{object_['kind']}.{object_['apiVersion']}, as the API holds it"
    return Panel(Syntax(text, "yaml", background_color="default"), title=title)


def transports_of(job: Object) -> list[str]:
    """How the edge workers of a job reach the cloud, as its status tells: direct, relay."""
    workers = job["status"]["workers"].values()
    return sorted({worker["details"]["transport"] for worker in workers})


def pods_of(api: Api, job: Object) -> list[Object]:
    """The pods of a job, sorted by name."""
    selector = f"{LABEL_NAME}={job['metadata']['name']}"
    pods = api.get(f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={selector}")["items"]
    return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))


def pods_table(pods: Iterable[Object], head: str, row: Callable[[Object], str]) -> Table:
    """Name, node and phase of each pod. Args: head, row: of a further column"""
    table = Table("POD", "NODE", "PHASE", head, box=None)
    for pod in pods:
        table.add_row(pod["metadata"]["name"], node_of(pod) or "-", phase_of_pod(pod), row(pod))
    return table


def comparison_table(title: str, *columns: str, caption: str | None = None) -> Table:
    """A table with names in the first column, and numbers in the others."""
    table = Table("", title=title, caption=caption)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def events(lines: Iterable[str]) -> Iterator[Event]:
    """The lines of a worker's log that are JSON objects with an "event". Skips all other lines."""
    for line in lines:
        with contextlib.suppress(msgspec.DecodeError):
            event = msgspec.json.decode(line)
            if isinstance(event, dict) and "event" in event:
                yield event


def result(api: Api, job: Object, pod: str) -> Event:
    """The last "result" in the log of a pod, of a job that has ended. Raises: DemoFailed"""
    if phase_of(job["status"]) != "Succeeded":
        raise DemoFailed(f"the job failed: {job['status']['conditions'][-1]['message']}")
    results = [event for event in events(api.log(NAMESPACE, pod)) if event["event"] == "result"]
    if not results:
        raise DemoFailed(f"the log of {pod} has no result")
    return results[-1]


def end(stage: Stage, running: Environment, job: Object) -> None:
    """Delete the CR. Wait until the CR and its pods are gone, and stop the demo's cluster. If
    `stage.keep` is true, print how to use the cluster instead.

    Raises: DemoFailed if files are left; the errors of environment.down
    """
    api = running.api
    api.delete(path_of(job))

    def remainder() -> str:
        items = [*pods_of(api, job), *([job] if api.find(path_of(job)) else [])]
        return ", ".join(item["metadata"]["name"] for item in items)

    wait_until(f"end of what {collection_of(job)} had", remainder, timeout_s=30)
    stage.tick("deleted; its workers have ended")
    if stage.keep:
        stage.console.print(f"Left running: export KUBECONFIG={running.kubeconfig}")
        stage.console.print(f"  edgeai status -w --state-dir {running.state_dir}")
        down = f"edgeai down --state-dir {running.state_dir}"
        stage.console.print(f"  {down} && rm -r {stage.directory}")
        return
    environment.down(stage.state_dir)
    if stage.state_dir.exists():
        raise DemoFailed(f"{stage.state_dir} was not removed")
    stage.tick("everything that was started has ended")


def _remove(stage: Stage) -> None:
    with interrupts.held_back():
        environment.down(stage.state_dir)
        shutil.rmtree(stage.directory)


def _print_logs(stage: Stage) -> None:
    """Print the last lines of all log files, because one of them may show the failure's cause."""
    for log in sorted(stage.directory.rglob("*.log")):
        with contextlib.suppress(OSError):
            tail = log.read_text(errors="replace").splitlines()[-10:]
            stage.console.print(Text(f"{log.relative_to(stage.directory)}:", style="dim"))
            stage.console.print(*tail, sep="\n", markup=False)
