"""The commands `edgeai install`, `upgrade`, `rollback` and `uninstall`, for `edgeai.cli.main`.

Everything else is imported late: the Kubernetes client and YAML take longer to load than all other
commands.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgeai.cli import options
from edgeai.cli.options import Output, OutputOption

if TYPE_CHECKING:
    from edgeai.cli.install.cluster import Cluster
    from edgeai.cli.install.next_steps import Outcome

ValuesFile = Annotated[
    Path | None, typer.Option("--values", "-f", help="YAML file with values; see docs/install.md")
]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="one value; goes before the file; repeatable"),
]
Directory = Annotated[
    Path | None,
    typer.Option(
        "--credentials", help="directory for the credentials of edge nodes: edgeAuth mtls, token"
    ),
]
Kubeconfig = Annotated[Path | None, typer.Option(help="default: $KUBECONFIG, or ~/.kube/config")]
Namespace = Annotated[str, typer.Option("-n", "--namespace", help="where edgeai is installed")]
Timeout = Annotated[float, typer.Option(min=1, help="seconds that all waits may take together")]
_NAMESPACE = "edgeai-system"
_TIMEOUT_S = 300.0


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("install")(install)
    app.command("upgrade")(upgrade)
    app.command("rollback")(rollback)
    app.command("uninstall")(uninstall)


def install(
    values: ValuesFile = None,
    assignments: Assignments = None,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="apply it and wait until it is ready, instead of printing"),
    ] = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="with --apply: take over what another tool has applied")
    ] = False,
    with_secrets: Annotated[
        bool, typer.Option("--with-secrets", help="print new certificates and their keys, too")
    ] = False,
    credentials: Directory = None,
    kubeconfig: Kubeconfig = None,
    timeout: Timeout = _TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Print what a cluster needs for edgeai, or apply it with --apply."""
    from edgeai.cli.install.values import read_values, values_of

    _check_flags(apply, {"--adopt": adopt, "--credentials": credentials is not None})
    _check_flags(not apply, {"--with-secrets": with_secrets})
    given = read_values(values, assignments or ())
    chosen = values_of(given)
    if not apply:
        from edgeai.cli.install import printing
        from edgeai.cli.install.rendering import as_yaml

        objects, notes = printing.printed(chosen, with_secrets=with_secrets)
        if output is Output.JSON:
            options.print_json({"apiVersion": "v1", "kind": "List", "items": objects})
        else:
            typer.echo(as_yaml(objects), nl=False)
        for note in notes:
            _say(note)
        return

    from edgeai.cli.install import installation, next_steps

    async def work(cluster: "Cluster") -> "Outcome":
        await installation.install(
            cluster, given, chosen, is_adopting=adopt, node_directory=credentials
        )
        return await next_steps.after_install(cluster)

    _run(work, kubeconfig, chosen.namespace, timeout, output)


def _check_flags(has_effect: bool, flags: dict[str, bool]) -> None:
    """Raises: InstallError for a flag that would be without effect"""
    from edgeai.cli.install.errors import InstallError

    for flag, is_given in flags.items():
        if is_given and not has_effect:
            where = "is for printing; leave out" if flag == "--with-secrets" else "needs"
            raise InstallError(f"{flag} {where} --apply")


def upgrade(
    values: ValuesFile = None,
    assignments: Assignments = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="take over definitions of another tool, if need be")
    ] = False,
    credentials: Directory = None,
    namespace: Namespace = _NAMESPACE,
    kubeconfig: Kubeconfig = None,
    timeout: Timeout = _TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Apply this version, or other values, to an installation of `edgeai install`."""
    from edgeai.cli.install import installation, next_steps
    from edgeai.cli.install.values import read_values

    given = None if values is None else read_values(values)

    async def work(cluster: "Cluster") -> "Outcome":
        await installation.upgrade(
            cluster, given, assignments or (), is_adopting=adopt, node_directory=credentials
        )
        return next_steps.after_upgrade(cluster)

    _run(work, kubeconfig, namespace, timeout, output)


def rollback(
    namespace: Namespace = _NAMESPACE,
    kubeconfig: Kubeconfig = None,
    timeout: Timeout = _TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Go back to what was installed before the last `edgeai upgrade`."""
    from edgeai.cli.install import installation, next_steps

    async def work(cluster: "Cluster") -> "Outcome":
        await installation.rollback(cluster)
        return next_steps.after_upgrade(cluster)

    _run(work, kubeconfig, namespace, timeout, output)


def uninstall(
    jobs: Annotated[bool, typer.Option("--jobs", help="remove all jobs, too")] = False,
    crds: Annotated[
        bool, typer.Option("--crds", help="remove the definitions, too; no job may be left")
    ] = False,
    namespace: Namespace = _NAMESPACE,
    kubeconfig: Kubeconfig = None,
    timeout: Timeout = _TIMEOUT_S,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove what `edgeai install` has made. Jobs and definitions stay unless asked for."""
    from edgeai.cli.install import next_steps, removal

    async def work(cluster: "Cluster") -> "Outcome":
        await removal.uninstall(cluster, jobs=jobs, crds=crds)
        return next_steps.after_uninstall(cluster)

    _run(work, kubeconfig, namespace, timeout, output)


def _run(
    work: "Callable[[Cluster], Awaitable[Outcome]]",
    kubeconfig: Path | None,
    namespace: str,
    timeout_s: float,
    output: Output,
) -> None:
    """Run a command against the cluster of the kubeconfig. Raises: EdgeAIError"""
    from edgeai.cli.install.cluster import Cluster
    from edgeai.client.asynchronous import OF_A_USER
    from edgeai.errors import InvalidName
    from edgeai.ids import is_subdomain
    from edgeai.kube.user import UserClient
    from edgeai.kubeconfig import kubeconfig_of

    if not is_subdomain(namespace):
        raise InvalidName("namespace", namespace, "letters, digits and -")
    file = kubeconfig_of(kubeconfig, None)

    async def run() -> "Outcome":
        async with await UserClient.from_kubeconfig(file, OF_A_USER) as client:
            return await work(Cluster(client, namespace, _say, timeout_s=timeout_s))

    outcome = asyncio.run(run())
    if output is Output.JSON:
        options.print_json(outcome)
    else:
        typer.echo(outcome)


def _say(line: str) -> None:
    from edgeai.text import printable

    typer.echo(f"edgeai: {printable(line)}", err=True)
