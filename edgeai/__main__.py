"""Entry point of the `edgeai` command."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from common.errors import EdgeAIError
from edgeai import environment, interrupts, status
from localcluster.errors import ClusterError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Run edgeai on this machine, look at it, and watch the demos.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
demo = typer.Typer(no_args_is_help=True, help="Watch a job kind at work, on real data.")
app.add_typer(demo, name="demo")

REFRESH_S = 1.0
MAX_EDGES = 20  # each is a process and its timers


def default_state_dir() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "edgeai"


StateDir = Annotated[
    Path,
    typer.Option(
        "--state-dir", default_factory=default_state_dir, help="where all its state is kept"
    ),
]


@app.command()
def up(
    state_dir: StateDir,
    edges: Annotated[
        int, typer.Option(min=1, max=MAX_EDGES, help="number of edge nodes: edge0, edge1, …")
    ] = len(environment.EDGES),
) -> None:
    """Start a local cluster with edgeai in it; prints the path of its kubeconfig."""
    names = tuple(f"edge{number}" for number in range(edges))
    typer.echo(environment.up(state_dir, edges=names).kubeconfig)


@app.command()
def down(state_dir: StateDir) -> None:
    """Stop the local cluster and all that runs in it, and remove its state."""
    if not environment.down(state_dir):
        typer.echo(f"nothing to stop in {state_dir}", err=True)


@app.command("status")
def show_status(
    state_dir: StateDir,
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="keep the table up to date until Ctrl-C")
    ] = False,
    url: Annotated[
        str, typer.Option(help="the GlobalManager's REST; default: the local cluster's")
    ] = "",
) -> None:
    """Show nodes, sessions, tasks and jobs, as the GlobalManager's REST tells them."""
    rest_url = url or environment.connect(state_dir).rest_url()
    console = Console()
    if not watch:
        console.print(status.page(rest_url))
        return
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(_page_or_reason(rest_url), refresh=True)
            time.sleep(REFRESH_S)


def _page_or_reason(rest_url: str) -> status.RenderableType:
    """A GlobalManager that restarts must not end somebody's watch."""
    try:
        return status.page(rest_url)
    except status.RestUnavailable as error:
        return f"[yellow]{error}"


@demo.command("joint-inference")
def demo_joint_inference(
    keep: Annotated[
        bool, typer.Option(help="leave everything running, and say how to look at it")
    ] = False,
) -> None:
    """A small model at the edge, a large one in the cloud for the hard samples."""
    with _needs_extra():
        # Not before: loading scikit-learn takes longer than all else that the command does.
        from edgeai.demo import joint_inference
    raise typer.Exit(joint_inference.run(Console(), keep=keep))


@demo.command("federated-learning")
def demo_federated_learning() -> None:
    """Three edges learn one model together; one is killed, one is cut off on the way."""
    with _needs_extra():
        from edgeai.demo import federated_learning
    raise typer.Exit(federated_learning.run(Console()))


@contextlib.contextmanager
def _needs_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise EdgeAIError(
            f"the demo needs {error.name}; install it with: pip install 'edgeai[demo]'"
        ) from error


def main() -> None:
    """Run the command; what edgeai foresaw becomes one line and exit status 1."""
    interrupts.exit_on_signals()
    try:
        app()
    except (EdgeAIError, ClusterError) as error:
        typer.echo(f"edgeai: {error}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
