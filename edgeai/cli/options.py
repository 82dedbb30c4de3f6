"""Options that several commands of `edgeai` share, how they run and how they print.

The command line of `edgeai` imports this module, so it imports late what loads slowly.
"""

import contextlib
import enum
import errno
import os
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
import typer

from edgeai.errors import EdgeAIError
from edgeai.kubeconfig import default_state_dir

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")
UNLIMITED_WIDTH: Final = 10_000
_FAILURES: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class Output(enum.StrEnum):
    TABLE = "table"
    JSON = "json"


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
OutputOption = Annotated[
    Output, typer.Option("-o", "--output", help="a table for people, or JSON for programs")
]
Namespace = Annotated[
    str, typer.Option("-n", "--namespace", help="default: the namespace of the context")
]


def _job_names(context: typer.Context, incomplete: str) -> list[str]:
    from edgeai.cli.jobs.completion import job_names

    return job_names(context, incomplete)


Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help="NAME or KIND/NAME, like digits or jis/digits",
        autocompletion=_job_names,
    ),
]


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
