"""The commands `edgeai describe`, `logs` and `submit`, for `edgeai.cli.main`."""

import zlib
from collections.abc import Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from edgeai import times
from edgeai.cli import options
from edgeai.cli.options import Job, Kubeconfig, Namespace, Output, OutputOption, StateDir
from edgeai.kubeconfig import kubeconfig_of
from edgeai.text import printable

# Import late what loads slowly, above all the Kubernetes client.
if TYPE_CHECKING:
    from rich.text import Text

    from edgeai.client import AsyncClient, LogLine

A = TypeVar("A")
COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("describe")(describe)
    app.command("logs")(logs)
    app.command("submit")(submit)


def describe(
    state_dir: StateDir,
    job: Job,
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one job on one page: its conditions and workers, what it waits for, what to do."""
    from edgeai.cli.jobs.finding import find
    from edgeai.cli.jobs.page import described, page
    from edgeai.client.excerpts import state_with_logs
    from edgeai.client.pods import pods_of

    now = times.utc_now()

    async def told() -> Any:
        async with await _client(kubeconfig, state_dir, namespace) as client:
            resource = await find(client, job)
            pods = await pods_of(client.kube, resource.DEFINITION, resource.object)
            state = await state_with_logs(client.kube, resource.object, pods, now)
            return described(resource, state, pods, now)

    description = options.run(told())
    if output is Output.JSON:
        options.print_json(description)
    else:
        options.console().print(page(description, now), crop=False)


def logs(
    state_dir: StateDir,
    job: Job,
    worker: Annotated[
        str, typer.Option("--worker", help="only pods with this name, end of a name, or role")
    ] = "",
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="keep printing until the job ends, or Ctrl-C")
    ] = False,
    tail: Annotated[
        int | None, typer.Option(min=0, help="print at most this many last lines of each container")
    ] = None,
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the logs of all pods of a job as one, by time. Each worker has its colour."""
    from edgeai.cli.jobs.finding import find

    console = options.console()

    def show(line: "LogLine") -> None:
        if output is Output.JSON:
            options.print_json(line, is_line=True)
        else:
            console.print(_coloured(line), crop=False, soft_wrap=True)

    async def read() -> int:
        number = 0
        async with await _client(kubeconfig, state_dir, namespace) as client:
            resource = await find(client, job)
            lines = client.logs(resource, worker=worker, follow=follow, tail=tail)
            async with aclosing(lines):
                async for line in lines:
                    show(line)
                    number += 1
        return number

    if not options.run(read()):
        fits = f"no pod of {job!r} matches --worker {worker}, or it has no log yet"
        problem = fits if worker else "no pod has a log yet"
        typer.echo(
            f"edgeai: {printable(problem)}; see `edgeai describe {printable(job)}`", err=True
        )


def _coloured(line: "LogLine") -> "Text":
    from rich.text import Text

    colour = COLOURS[zlib.crc32(line.worker.encode()) % len(COLOURS)]
    prefix = Text(f"{line.worker} ", style=colour)
    return prefix.append(line.text, style="yellow" if line.is_notice else "")


def submit(
    state_dir: StateDir,
    file: Annotated[Path, typer.Argument(metavar="FILE", help='YAML; "-" is the standard input')],
    wait: Annotated[
        bool, typer.Option("--wait", help="wait until each object has succeeded or failed")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout-s", min=0.1, help="seconds to wait for all objects together")
    ] = 600.0,
    force: Annotated[
        bool, typer.Option("--force", help="take over fields that another client has set")
    ] = False,
    kubeconfig: Kubeconfig = None,
    namespace: Namespace = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Apply the objects of a file. With --wait, print their progress.

    The exit code is 0 on success, 1 when an object failed or was refused, and 2 at the
    deadline.
    """
    from edgeai.cli.jobs import submitting
    from edgeai.client.state import state_of

    documents = submitting.read_documents(file, namespace)

    def tell(line: str) -> None:
        typer.echo(printable(line), err=output is Output.JSON)

    async def run() -> Any:
        async with await _client(kubeconfig, state_dir, namespace) as client:
            objects = await submitting.submit(client, documents, tell, is_forced=force)
            if not wait:
                return 0, [
                    submitting.submitted(object_, state_of(object_.object)) for object_ in objects
                ]
            return await submitting.wait_for_all(client, objects, timeout_s, tell)

    code, objects = options.run(run())
    if output is Output.JSON:
        options.print_json(objects)
    if code:
        raise typer.Exit(code)


def _client(
    kubeconfig: Path | None, state_dir: Path, namespace: str
) -> Coroutine[Any, Any, "AsyncClient"]:
    from edgeai.client import AsyncClient

    return AsyncClient.open(kubeconfig_of(kubeconfig, state_dir), namespace)
