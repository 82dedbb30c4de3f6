"""The commands `edgeai install`, `upgrade`, `rollback` and `uninstall`, for `edgeai.__main__`."""

from pathlib import Path
from typing import Annotated

import typer

ValuesFile = Annotated[
    Path | None, typer.Option("--values", "-f", help="YAML file with values; see docs/install.md")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="one value; goes before the file; repeatable"),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("install")(install)


def install(values: ValuesFile = None, assignments: Assignments = None) -> None:
    """Print what a cluster needs for edgeai."""
    # Import late: reading YAML and JSON patches takes longer than the start of other commands.
    from edgeai.install.rendering import as_yaml, definitions, in_order, render
    from edgeai.install.values import read_values, values_of

    chosen = values_of(read_values(values, assignments or ()))
    typer.echo(as_yaml(in_order([*render(chosen), *definitions(chosen)])), nl=False)
