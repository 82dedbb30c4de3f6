"""Entry point of the `edgeai` command."""

import contextlib
import functools
import importlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from edgeai import extras
from edgeai.cli import interrupts, options, system
from edgeai.cli.credentials.commands import credentials
from edgeai.cli.jobs import commands as job_commands
from edgeai.cli.options import Cluster, Output, OutputOption, StateDir
from edgeai.errors import EdgeAIError
from edgeai.kube import warnings
from edgeai.localcluster.errors import ClusterError
from edgeai.text import printable

# Commands import late what they alone need, so that `edgeai --help` and completion answer at once.
if TYPE_CHECKING:
    from edgeai.cli.status import Status

_OF_CLUSTER = ("--kubeconfig", "--context", "--namespace", "-n", "--state-dir", "-o", "--output")


def in_order(words: list[str]) -> list[str]:
    """The words of a command line with the options of a cluster behind the command, where typer
    wants them: "-n team get" -> "get -n team".
    """
    end = 0
    while end < len(words) and words[end].startswith("-"):
        name, has_value, _ = words[end].partition("=")
        if name in _OF_CLUSTER:
            end += 1 if has_value else 2
        elif name in ("-A", "--all-namespaces") or name[:2] in ("-n", "-o"):
            end += 1
        else:
            break
    return [*words[end : end + 1], *words[:end], *words[end + 1 :]]


class Commands(TyperGroup):
    """Commands, before which the options of a cluster may stand, also where a shell completes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, in_order(args))


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    help="Run edgeai on this machine, look at it, and watch the demos.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
demo = typer.Typer(cls=Commands, no_args_is_help=True, help="Watch a kind of job on real data.")
app.add_typer(demo, name="demo")
job_commands.register(app)
app.command()(credentials)

REFRESH_S = 1.0
MAX_EDGES = 20  # each edge node is a process with timers
of_installation = functools.partial(
    options.in_cluster, namespace=system.NAMESPACE, namespace_help="where edgeai is installed"
)
_STARTS = "the cluster runs, and edgeai starts in it"

Verbose = Annotated[
    bool, typer.Option("--verbose", help="show the status of the job and the data, too")
]
IsolatedEdges = Annotated[
    bool,
    typer.Option(
        "--isolated-edges",
        help="let edge nodes reach only the edge port of the GlobalManager; needs root",
    ),
]


@app.command()
def up(
    state_dir: StateDir,
    edges: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_EDGES,
            show_default=str(len(system.EDGES)),
            help="number of edge nodes: edge0, edge1, …",
        ),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start a local cluster with edgeai in it, unless it runs. Print its kubeconfig's path."""
    from edgeai.cli import environment

    running = environment.find(state_dir)
    if running is None:
        names = tuple(f"edge{n}" for n in range(len(system.EDGES) if edges is None else edges))
        with _extra("local"):
            running = environment.up(state_dir, edges=names, on_api=lambda _: _say(_STARTS))
        _say("look at it with `edgeai status` or `edgeai open`, stop it with `edgeai down`")
    else:
        present = len(running.cluster.nodes) - 1  # one node is the cloud node
        summary = f"in {running.state_dir}, process {running.cluster.pid}, edge nodes: {present}"
        if edges not in (None, present):
            problem = f"a local cluster runs {summary}, not {edges}; stop it with: edgeai down"
            raise EdgeAIError(problem)
        _say(f"the local cluster is already running {summary}")
    if output is Output.JSON:
        nodes = sorted(running.cluster.nodes)
        options.print_json({"kubeconfig": str(running.kubeconfig), "nodes": nodes})
    else:
        typer.echo(running.kubeconfig)


def _say(line: str) -> None:
    typer.echo(f"edgeai: {line}", err=True)


@app.command()
def down(state_dir: StateDir, output: OutputOption = Output.TABLE) -> None:
    """Stop the local cluster with everything in it, and remove its state."""
    from edgeai.cli import environment

    is_stopped = environment.down(state_dir)
    if output is Output.JSON:
        options.print_json({"stopped": is_stopped})
    elif not is_stopped:
        typer.echo(f"nothing to stop in {state_dir}", err=True)


@app.command("open")
@of_installation
def open_console(
    cluster: Cluster,
    browser: Annotated[bool, typer.Option(help="open the address in a browser")] = True,
    service_account: Annotated[
        str,
        typer.Option(
            metavar="NAMESPACE/NAME",
            help="log in as this ServiceAccount; default: the token of the kubeconfig",
        ),
    ] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="local port; 0: any free port")] = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Open the web console, already logged in. Print its address.

    The address works once, and within 30 seconds. The console of a cluster is there until Ctrl-C;
    that of the local cluster as long as the cluster.
    """
    from edgeai.cli import environment
    from edgeai.cli.console import login_address, open_in_cluster

    def show(address: str) -> None:
        if output is Output.JSON:
            options.print_json({"address": address}, is_line=True)
        else:
            typer.echo(address)
        if browser:
            typer.launch(address)

    target = environment.target(cluster.kubeconfig, cluster.state_dir, cluster.context)
    if isinstance(target, environment.Environment):
        show(login_address(target.rest_url(), target.api.token))
        return
    options.run(
        open_in_cluster(
            *(target, cluster.namespace),
            account=service_account,
            context=cluster.context,
            port=port,
            show=show,
            say=_say,
        )
    )


@app.command("status")
@functools.partial(options.in_cluster, namespace_help="only jobs of it; default: of all namespaces")
def show_status(
    cluster: Cluster,
    watch: Annotated[
        bool,
        typer.Option(
            "-w",
            "--watch",
            help="keep the table up to date until Ctrl-C; JSON: a line each time",
        ),
    ] = False,
    url: Annotated[
        str, typer.Option(help="the GlobalManager's REST; default: the local cluster's")
    ] = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Show nodes, sessions, tasks, jobs and scalers, as reported by the GlobalManager's REST API.

    If REST is not reachable, print what the Kubernetes API has.
    """
    from edgeai.cli import status, status_sources

    source = status_sources.source_of(url, cluster)
    if watch:
        (_watch_lines if output is Output.JSON else _watch_page)(source)
    answer = source()
    for problem in answer.unknown:
        _say(printable(problem))
    if output is Output.JSON:
        options.print_json(answer)
    else:
        options.console().print(status.page(answer), crop=False)


def _watch_lines(source: "Callable[[], Status]") -> NoReturn:
    """A line of JSON each time; why there is none, on stderr."""
    while True:
        try:
            options.print_json(source(), is_line=True)
        except EdgeAIError as error:
            _say(printable(str(error)))
        time.sleep(REFRESH_S)


def _watch_page(source: "Callable[[], Status]") -> NoReturn:
    """The page, or the reason why there is none: a restart of the GlobalManager ends no watch."""
    from rich.live import Live
    from rich.text import Text

    from edgeai.cli import status

    with Live(console=options.console(), auto_refresh=False) as live:
        while True:
            try:
                live.update(status.page(source()), refresh=True)
            except EdgeAIError as error:
                live.update(Text(printable(str(error)), style="yellow"), refresh=True)
            time.sleep(REFRESH_S)


@app.command("version")
def show_version(output: OutputOption = Output.TABLE) -> None:
    """Print the version of this command. `edgeai doctor` has those of an installation."""
    from common.version import VERSION

    if output is Output.JSON:
        options.print_json({"version": VERSION})
    else:
        typer.echo(f"edgeai {VERSION}")


@app.command("doctor")
@of_installation
def show_doctor(cluster: Cluster, output: OutputOption = Output.TABLE) -> None:
    """Say what is wrong with an installation of edgeai, and what to do. Change nothing.

    The exit code is 1 when there is an error, else 2 when something could not be checked.
    """
    from edgeai.cli.doctor import diagnosis

    diagnose = diagnosis.diagnose(cluster.file, cluster.namespace, context=cluster.context)
    findings = options.run(diagnose)
    if output is Output.JSON:
        options.print_json(findings)
    else:
        options.console().print(diagnosis.table(findings), crop=False)
    levels = {finding.level for finding in findings}
    if levels & {"error", "unknown"}:
        raise typer.Exit(1 if "error" in levels else 2)


@demo.command("joint-inference")
def demo_joint_inference(
    keep: Annotated[
        bool, typer.Option(help="leave everything running and print how to inspect it")
    ] = False,
    isolated_edges: IsolatedEdges = False,
    verbose: Verbose = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a small model at the edge, and a large model in the cloud for the hard samples."""
    with _extra("demo", "sklearn"):
        from edgeai.demo import stage
        from edgeai.demo.joint_inference.story import story
    play = functools.partial(story, isolated_edges=isolated_edges)
    raise typer.Exit(stage.perform(play, output, keep=keep, verbose=verbose))


@demo.command("federated-learning")
def demo_federated_learning(
    isolated_edges: IsolatedEdges = False,
    verbose: Verbose = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Train one model on three edges. A fault kills one trainer and cuts off another edge."""
    with _extra("demo", "sklearn"):
        from edgeai.demo import stage
        from edgeai.demo.federated_learning.story import story
    play = functools.partial(story, isolated_edges=isolated_edges)
    raise typer.Exit(stage.perform(play, output, verbose=verbose))


@demo.command("distributed-training")
def demo_distributed_training(
    python: Annotated[
        Path | None,
        typer.Option(help="a Python that has PyTorch and NumPy; default: one in the user's cache"),
    ] = None,
    verbose: Verbose = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Train one network in three processes with PyTorch. One process is killed during training."""
    with _extra("demo", "sklearn"):
        from edgeai.demo.distributed_training import story as distributed_training
    raise typer.Exit(distributed_training.run(output, verbose=verbose, python=python))


@demo.command("elastic-training")
def demo_elastic_training(verbose: Verbose = False, output: OutputOption = Output.TABLE) -> None:
    """Train one network while workers come and go. One of them is killed during training."""
    with _extra("demo", "sklearn"):
        from edgeai.demo import stage
        from edgeai.demo.elastic_training.story import story
    raise typer.Exit(stage.perform(story, output, verbose=verbose))


@demo.command("closed-loop")
def demo_closed_loop(verbose: Verbose = False, output: OutputOption = Output.TABLE) -> None:
    """Learn from what edges find hard, and give models out in waves. A bad one is taken back."""
    with _extra("demo", "sklearn"):
        from edgeai.demo import stage
        from edgeai.demo.closed_loop.story import story
    raise typer.Exit(stage.perform(story, output, verbose=verbose))


@contextlib.contextmanager
def _extra(name: str, *more: str) -> Iterator[None]:
    """Ends with the extra to install, before anything of a local cluster starts."""
    with extras.required("edgeai", name):
        for library in ("jsonpatch", "obstore", "uvloop", *more):
            importlib.import_module(library)
        yield


def main() -> None:
    """Run the command. For an EdgeAIError or a ClusterError print one line and exit with 1."""
    interrupts.exit_on_signals()
    handler = logging.StreamHandler()  # what the API server warns of, as kubectl prints it
    handler.setFormatter(logging.Formatter("Warning: %(message)s"))
    logging.getLogger(warnings.LOGGER).addHandler(handler)
    try:
        with options.checked_output():
            app()
    except (EdgeAIError, ClusterError) as error:
        # The text may be of a server, a plugin or a tenant. Only our own lines end.
        typer.echo("\n".join(map(printable, f"edgeai: {error}".split("\n"))), err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
