"""The command `edgeai credentials`, for `edgeai.cli.main`."""

from pathlib import Path
from typing import Annotated

import typer

from edgeai.cli import options, system
from edgeai.cli.options import Context, Output, OutputOption
from edgeai.kubeconfig import kubeconfig_of
from edgeai.text import printable

Certificates = Annotated[
    Path | None,
    typer.Option("--certificates", help="directory for a certificate of each edge node: mtls"),
]
Tokens = Annotated[
    Path | None, typer.Option("--tokens", help="directory for a token of each edge node: token")
]


def credentials(
    edge_host: Annotated[
        str,
        typer.Option(
            "--edge-host",
            help="name or address at which edge nodes reach the GlobalManager; default: that of "
            "the installation, or the Service",
        ),
    ] = "",
    certificates: Certificates = None,
    tokens: Tokens = None,
    namespace: Annotated[
        str, typer.Option("-n", "--namespace", help="of edgeai; created if it is missing")
    ] = system.NAMESPACE,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="default: $KUBECONFIG, or ~/.kube/config")
    ] = None,
    context: Context = "",
    output: OutputOption = Output.TABLE,
) -> None:
    """Create the certificate of the edge port and the credentials of edge nodes, or renew them.

    What is good stays, and what somebody else has created is never changed.
    """
    from edgeai import times
    from edgeai.cli.credentials.credentials import Credentials
    from edgeai.client import AsyncClient
    from edgeai.errors import InvalidName

    if not namespace:
        raise InvalidName("namespace", namespace, "letters, digits and -")
    file = kubeconfig_of(kubeconfig, None)

    def say(line: str) -> None:
        typer.echo(f"edgeai: {printable(line)}", err=output is Output.JSON)

    async def run() -> list[str]:
        async with await AsyncClient.open(file, namespace, context=context) as client:
            writer = Credentials(client.kube, namespace, say, times.utc_now())
            await writer.ensure_namespace()
            await writer.ensure_edge_port(edge_host)
            if certificates is not None:
                await writer.write_certificates(certificates)
            if tokens is not None:
                await writer.write_tokens(tokens)
            return writer.written

    written = options.run(run())
    if output is Output.JSON:
        options.print_json({"namespace": namespace, "written": written})
