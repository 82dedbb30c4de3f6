"""Options that several commands of `edgeai` share, how they run and how they print.

The command line of `edgeai` imports this module, so it imports late what loads slowly.
"""

import contextlib
import enum
import errno
import functools
import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, TypeVar

import msgspec
import typer

from edgeai.cli.jobs import completion
from edgeai.errors import EdgeAIError
from edgeai.kubeconfig import default_state_dir, kubeconfig_of

if TYPE_CHECKING:
    from rich.console import Console

    from edgeai.client import AsyncClient

T = TypeVar("T")
UNLIMITED_WIDTH: Final = 10_000
_FAILURES: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class Output(enum.StrEnum):
    TABLE = "table"
    JSON = "json"


class ObjectOutput(enum.StrEnum):
    TABLE = "table"
    WIDE = "wide"
    NAME = "name"
    JSON = "json"
    YAML = "yaml"


StateDir = Annotated[
    Path,
    typer.Option(
        "--state-dir",
        default_factory=default_state_dir,
        help="directory for the state of the local cluster",
    ),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option(help="default: $KUBECONFIG, the local cluster's, or ~/.kube/config"),
]
Context = Annotated[
    str, typer.Option("--context", help="of the kubeconfig; default: its current context")
]
OutputOption = Annotated[
    Output, typer.Option("-o", "--output", help="a table for people, or JSON for programs")
]
ObjectOutputOption = Annotated[
    ObjectOutput,
    typer.Option("-o", "--output", help="a table; the names; JSON or YAML of the whole objects"),
]
Job = Annotated[
    list[str],
    typer.Argument(
        metavar="[KIND] NAME",
        help="like digits, jis digits or jis/digits",
        autocompletion=completion.job_names,
    ),
]


def job_of(words: Sequence[str]) -> str:
    """The words of a Job as one: NAME or KIND/NAME."""
    if len(words) > 2:
        raise typer.BadParameter(f"{' '.join(words)!r} is more than a kind and a name")
    return "/".join(words)


class Cluster(NamedTuple):
    state_dir: Path
    kubeconfig: Path | None
    context: str
    namespace: str

    @property
    def file(self) -> Path:
        return kubeconfig_of(self.kubeconfig, self.state_dir)

    async def client(self) -> "AsyncClient":
        """Raises: SettingsError"""
        from edgeai.client import AsyncClient

        return await AsyncClient.open(self.file, self.namespace, context=self.context)


def in_cluster(
    command: Callable[..., None],
    *,
    namespace: str = "",
    namespace_help: str = "default: the namespace of the context",
) -> Callable[..., None]:
    """The command with the options of Cluster, which it gets as `cluster`.

    Args: namespace: the default of --namespace
    """
    signature = inspect.signature(command)
    parameters = [one for one in signature.parameters.values() if one.name != "cluster"]
    option = typer.Option("-n", "--namespace", help=namespace_help)
    cluster_options: dict[str, tuple[Any, Any]] = {
        "state_dir": (StateDir, inspect.Parameter.empty),
        "kubeconfig": (Kubeconfig, None),
        "context": (Context, ""),
        "namespace": (Annotated[str, option], namespace),
    }
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=type_)
        for name, (type_, default) in cluster_options.items()
    ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        cluster = Cluster(*(values.pop(name) for name in Cluster._fields))
        command(cluster=cluster, **values)

    del run.__wrapped__  # typer reads the signature below
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    )
    return run


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(coroutine)


def console() -> "Console":
    """A console that does not cut lines where nobody sees a terminal's edge."""
    from rich.console import Console

    console = Console(highlight=False)
    if not sys.stdout.isatty():
        console.width = UNLIMITED_WIDTH
    return console


def print_json(value: Any, *, is_line: bool = False) -> None:
    """Args: is_line: in one line, for a stream of them"""
    text = msgspec.json.encode(value)
    typer.echo(text if is_line else msgspec.json.format(text, indent=2))


def print_yaml(value: Any) -> None:
    import yaml

    typer.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)


class NotWritten(EdgeAIError):
    pass


@contextlib.contextmanager
def checked_output() -> Iterator[None]:
    """Raises: NotWritten when the standard output is closed or full"""
    if sys.stdout is None:
        _give_up("is closed")
    try:
        yield
    except OSError as error:
        if error.errno not in _FAILURES or error.filename is not None:
            raise
        _give_up(f"cannot be written: {error.strerror}")


def _give_up(problem: str) -> None:
    """Raises: NotWritten. What is left in the buffer goes nowhere, so nothing fails at the end."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
    raise NotWritten(f"the standard output {problem}")
