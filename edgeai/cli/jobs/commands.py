"""The commands about jobs: `edgeai get`, `describe`, `logs`, `submit`, `scale` and others."""

import re
import zlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from edgeai import times
from edgeai.cli import options
from edgeai.cli.jobs import completion
from edgeai.cli.options import Cluster, Job, ObjectOutput, ObjectOutputOption, Output, OutputOption
from edgeai.errors import EdgeAIError
from edgeai.text import printable

# Import late what loads slowly, above all the Kubernetes client.
if TYPE_CHECKING:
    from rich.text import Text

    from edgeai.client import AsyncClient, LogLine
    from edgeai.client.objects import AnyResource

_DURATION: Final = re.compile("([0-9]{1,6})([smh])")
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600}
_ROLLOUT: Final = {
    "pause": ("Let no further wave begin. A version that fails is taken back.", "paused"),
    "resume": ("Let a paused rollout go on.", "resumed"),
    "promote": ("Let the next wave begin at once, whatever pause and guard say.", "promoted"),
    "rollback": ("Take the version back from every node, also when all have it.", "taken back"),
}
"""Action of `roll` -> help, and what the command prints."""
COLOURS: Final = ("cyan", "magenta", "green", "yellow", "blue", "bright_red", "bright_cyan")


def register(app: typer.Typer) -> None:
    for command in (get, describe, logs, submit, wait, suspend, resume, scale, delete):
        app.command(command.__name__)(options.in_cluster(command))
    app.command("list", hidden=True)(options.in_cluster(get))
    rollout = typer.Typer(help="How a new version of a Model goes to the nodes of a fleet.")
    rollout.command("status")(options.in_cluster(status))
    for action, (help_, outcome) in _ROLLOUT.items():
        rollout.command(action, help=help_)(options.in_cluster(_roll(action, outcome)))
    app.add_typer(rollout, name="rollout")


def get(
    cluster: Cluster,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KIND] [NAME]",
            help="default: the jobs of all kinds",
            autocompletion=completion.job_names,
        ),
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("-A", "--all-namespaces", help="the objects of all namespaces")
    ] = False,
    output: ObjectOutputOption = ObjectOutput.TABLE,
) -> None:
    """List jobs, or the objects of one kind: phase, progress and what they wait for."""
    from edgeai.cli.jobs import listing

    is_alone = listing.is_name(words or [])
    if is_alone and all_namespaces:
        raise typer.BadParameter("-A lists a kind, and does not find a name; leave out one of both")

    async def read() -> Any:
        async with await cluster.client() as client:
            return await listing.read(client, words or [], all_namespaces=all_namespaces)

    objects = options.run(read())
    if output in (ObjectOutput.TABLE, ObjectOutput.WIDE):
        table = listing.table(
            objects, has_namespace=all_namespaces, is_wide=output is ObjectOutput.WIDE
        )
        options.console().print(table, crop=False)
    else:
        _print(objects, output, is_alone=is_alone)


def describe(cluster: Cluster, job: Job, output: OutputOption = Output.TABLE) -> None:
    """Show one job on one page: its conditions and workers, what it waits for, what to do."""
    from edgeai.cli.jobs.finding import find
    from edgeai.cli.jobs.page import described, page
    from edgeai.client.excerpts import state_with_logs
    from edgeai.client.pods import pods_of

    now = times.utc_now()

    async def read() -> Any:
        async with await cluster.client() as client:
            resource = await find(client, options.job_of(job))
            pods = await pods_of(client.kube, resource)
            state = await state_with_logs(client.kube, resource.object, pods, now)
            return described(resource, state, pods, now)

    description = options.run(read())
    if output is Output.JSON:
        options.print_json(description)
    else:
        options.console().print(page(description, now), crop=False)


def logs(
    cluster: Cluster,
    job: Job,
    worker: Annotated[
        str,
        typer.Option(
            "--worker",
            help="only pods with this name, end of a name, or role",
            autocompletion=completion.worker_names,
        ),
    ] = "",
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="keep printing until the job ends, or Ctrl-C")
    ] = False,
    tail: Annotated[
        int | None, typer.Option(min=0, help="print at most this many last lines of each container")
    ] = None,
    since: Annotated[
        str, typer.Option(metavar="DURATION", help="only lines of this age: 30s, 10m, 2h")
    ] = "",
    previous: Annotated[
        bool, typer.Option("-p", "--previous", help="of the runs before the last restarts")
    ] = False,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="the time before each line")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the logs of all pods of a job as one, by time. Each worker has its colour."""
    from edgeai.cli.jobs.finding import find

    if follow and previous:
        raise typer.BadParameter("a run that is over cannot be followed: leave out -f or -p")
    console = options.console()
    name, since_s = options.job_of(job), _seconds(since)

    async def read() -> int:
        number = 0
        async with await cluster.client() as client:
            lines = client.logs(
                await find(client, name),
                worker=worker,
                follow=follow,
                tail=tail,
                since_s=since_s,
                is_previous=previous,
            )
            async with aclosing(lines):
                async for line in lines:
                    number += 1
                    if output is Output.JSON:
                        options.print_json(line, is_line=True)
                    else:
                        console.print(_coloured(line, timestamps), crop=False, soft_wrap=True)
        return number

    if not options.run(read()):
        _explain_silence(name, worker, is_part=bool(since or previous or tail is not None))


def _explain_silence(name: str, worker: str, *, is_part: bool) -> None:
    """Say why there is no line. Args: is_part: only a part of the log was wanted

    Raises: EdgeAIError when the name of the worker may be wrong
    """
    remedy = f"see `edgeai describe {name}`"
    if is_part:
        typer.echo("edgeai: there are no such lines", err=True)
    elif worker:
        problem = f"no pod of {name!r} matches --worker {worker}, or it has no log yet"
        raise EdgeAIError(f"{problem}; {remedy}")
    else:
        typer.echo(printable(f"edgeai: no pod has a log yet; {remedy}"), err=True)


def _seconds(duration: str) -> int | None:
    if not duration:
        return None
    if not (match := _DURATION.fullmatch(duration)) or not int(match[1]):
        raise typer.BadParameter(f"--since {duration!r} is no time; write it as 30s, 10m or 2h")
    return int(match[1]) * _UNITS_S[match[2]]


def _coloured(line: "LogLine", has_time: bool) -> "Text":
    from rich.text import Text

    colour = COLOURS[zlib.crc32(line.worker.encode()) % len(COLOURS)]
    prefix = Text(f"{line.time} " if has_time and line.time else "", style="dim")
    prefix.append(f"{line.worker} ", style=colour)
    return prefix.append(line.text, style="yellow" if line.is_notice else "")


def submit(
    cluster: Cluster,
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
    output: OutputOption = Output.TABLE,
) -> None:
    """Apply the objects of a file. With --wait, print their progress.

    The exit code is 0 on success, 1 when an object failed or was refused, and 2 at the
    deadline.
    """
    from edgeai.cli.jobs import submitting
    from edgeai.client.state import state_of

    documents = submitting.read_documents(file, cluster.namespace)

    def tell(line: str) -> None:
        typer.echo(printable(line), err=output is Output.JSON)

    async def run() -> Any:
        async with await cluster.client() as client:
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


def wait(
    cluster: Cluster,
    job: Job,
    condition: Annotated[
        str,
        typer.Option(
            "--for", help='"ended", "deleted", or a condition: Running, Succeeded, Running=False'
        ),
    ] = "ended",
    timeout_s: Annotated[float, typer.Option("--timeout-s", min=0.1, help="seconds")] = 600.0,
    output: ObjectOutputOption = ObjectOutput.TABLE,
) -> None:
    """Wait until a job has ended, is deleted, or has a condition.

    The exit code is 0 when it is so, 1 when it has ended and failed, and 2 at the deadline.
    """
    from edgeai.client.errors import AmbiguousName, JobNotFound, WaitTimeout
    from edgeai.client.state import state_of
    from edgeai.client.waiting import DELETED, END

    try:
        object_ = _changed(
            cluster, job, lambda client, one: client.wait(one, condition, timeout_s=timeout_s)
        )
    except JobNotFound as error:
        if condition != DELETED or isinstance(error, AmbiguousName):
            raise
        if output is ObjectOutput.JSON:
            options.print_json(None)
        elif output in (ObjectOutput.TABLE, ObjectOutput.WIDE):
            typer.echo(printable(f"{options.job_of(job)}: there is none"))
        return
    except WaitTimeout as error:
        typer.echo(f"edgeai: {printable(str(error))}", err=True)
        raise typer.Exit(2) from error
    result = state_of(object_.object).result if condition == END else ""
    _tell(object_, result or condition, output)
    raise typer.Exit(int(result == "failed"))


def suspend(cluster: Cluster, job: Job, output: ObjectOutputOption = ObjectOutput.TABLE) -> None:
    """End the pods of a job until `edgeai resume`. What it has learned stays in its checkpoints."""
    _tell(_changed(cluster, job, lambda client, one: client.suspend(one)), "suspended", output)


def resume(cluster: Cluster, job: Job, output: ObjectOutputOption = ObjectOutput.TABLE) -> None:
    """Let a suspended job run again."""
    _tell(_changed(cluster, job, lambda client, one: client.resume(one)), "resumed", output)


def status(cluster: Cluster, job: Job, output: OutputOption = Output.TABLE) -> None:
    """Show which version goes out, how far it is, and by which figures it was stopped."""
    from edgeai.api.rollouts import facts_of
    from edgeai.cli.jobs.finding import find

    async def read() -> dict[str, str]:
        async with await cluster.client() as client:
            return facts_of((await find(client, options.job_of(job))).object)

    facts = options.run(read())
    if output is Output.JSON:
        options.print_json(facts)
    for label, text in facts.items() if output is Output.TABLE else ():
        typer.echo(printable(f"{label + ':':16}{text}"))
    if not facts and output is Output.TABLE:
        typer.echo("no version goes out in waves: the job has no spec.rollout")


def _roll(action: str, outcome: str) -> Callable[..., None]:
    def roll(cluster: Cluster, job: Job, output: ObjectOutputOption = ObjectOutput.TABLE) -> None:
        _tell(_changed(cluster, job, lambda client, one: client.roll(one, action)), outcome, output)

    return roll


def scale(
    cluster: Cluster,
    job: Job,
    replicas: Annotated[int, typer.Option(min=0, help="the number of workers")],
    output: ObjectOutputOption = ObjectOutput.TABLE,
) -> None:
    """Set the number of workers of a PyTorchJob or a TrainingJob."""
    change = _changed(cluster, job, lambda client, one: client.scale(one, replicas))
    _tell(change, f"scaled to {replicas}", output)


def delete(cluster: Cluster, job: Job, output: ObjectOutputOption = ObjectOutput.TABLE) -> None:
    """Delete a job, or another object. Its workers go with it."""
    _tell(_changed(cluster, job, lambda client, one: client.delete(one)), "deleted", output)


def _changed(
    cluster: Cluster,
    job: list[str],
    change: Callable[["AsyncClient", "AnyResource"], Awaitable["AnyResource | None"]],
) -> "AnyResource":
    """The object that the words mean, after the change, which may be its end."""
    from edgeai.cli.jobs.finding import find

    async def run() -> "AnyResource":
        async with await cluster.client() as client:
            object_ = await find(client, options.job_of(job))
            return await change(client, object_) or object_

    return options.run(run())


def _tell(object_: "AnyResource", outcome: str, output: ObjectOutput) -> None:
    if output in (ObjectOutput.TABLE, ObjectOutput.WIDE):
        typer.echo(printable(f"{object_}: {outcome}"))
    else:
        _print([object_], output, is_alone=True)


def _print(
    objects: Sequence["AnyResource"], output: ObjectOutput, *, is_alone: bool = False
) -> None:
    """Args: is_alone: the one object, not a list of it"""
    if output is ObjectOutput.NAME:
        for one in objects:
            typer.echo(f"{one.DEFINITION.singular}.{one.type.group}/{one.name}")
        return
    items = [one.object for one in objects]
    show = options.print_json if output is ObjectOutput.JSON else options.print_yaml
    show(items[0] if is_alone else {"apiVersion": "v1", "kind": "List", "items": items})
