"""Finds the cluster, reads the facts, shows what the checks have found."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.table import Table
from rich.text import Text

from edgeai import times
from edgeai.cli.doctor.checks import findings
from edgeai.cli.doctor.facts import AskAbout, gather
from edgeai.cli.doctor.finding import Finding
from edgeai.client.asynchronous import OF_A_USER
from edgeai.errors import EdgeAIError, InvalidName, SettingsError
from edgeai.ids import is_subdomain
from edgeai.kube.errors import ApiError
from edgeai.kube.remedies import OF_A_COMMAND
from edgeai.kube.sender import ClientSettings
from edgeai.kube.user import UserClient
from edgeai.text import printable

_STYLES: Final = {"ok": "green", "warning": "yellow", "error": "red", "unknown": "dim"}
DEADLINE_S: Final = 30.0


async def diagnose(
    kubeconfig: Path,
    namespace: str,
    now: times.Clock = times.utc_now,
    about: AskAbout = UserClient.about,
    settings: ClientSettings = OF_A_USER,
    deadline_s: float = DEADLINE_S,
    context: str = "",
) -> list[Finding]:
    """What is wrong, or well, with the installation in `namespace`. An API that does not answer is
    a finding.

    Args: context: of the kubeconfig; "" for the current context
    """
    is_open = False
    try:
        if not is_subdomain(namespace):
            raise InvalidName("namespace", namespace, "letters, digits and -")
        async with asyncio.timeout(deadline_s):
            async with await UserClient.from_kubeconfig(
                kubeconfig, settings, context=context
            ) as client:
                is_open = True
                facts = await gather(client, namespace, now, about)
    except TimeoutError:
        if not is_open:
            message = f"the exec plugin of {kubeconfig} gave no credential within {deadline_s:g} s"
            remedy = (
                "type its command, which is in the kubeconfig below users, and see what it says"
            )
            return [Finding("api", "error", message, remedy)]
        message = f"the Kubernetes API of {kubeconfig} did not answer within {deadline_s:g} s"
        return [Finding("api", "error", message, _silent(kubeconfig))]
    except (SettingsError, InvalidName) as error:
        return [Finding("api", "error", str(error))]
    except ApiError as error:
        return [Finding("api", "error", error.problem, error.remedy or _silent(kubeconfig))]
    except EdgeAIError as error:
        return [Finding("api", "error", str(error), _silent(kubeconfig))]
    return [Finding("api", "ok", f"the Kubernetes API of {kubeconfig} answers"), *findings(facts)]


def _silent(kubeconfig: Path) -> str:
    return OF_A_COMMAND.silent.format(source=f"kubeconfig {kubeconfig}")


def table(findings: Sequence[Finding]) -> Table:
    """One row for each finding, the remedy below the message."""
    rows = Table(box=None)
    for header in ("CHECK", "", "FINDING"):
        rows.add_column(header, overflow="fold")
    for finding in findings:
        text = Text(printable(finding.message))
        if finding.remedy:
            text.append(f"\n=> {printable(finding.remedy)}", style="bold")
        rows.add_row(finding.check, Text(finding.level, style=_STYLES[finding.level]), text)
    return rows


def as_json(findings: Sequence[Finding]) -> str:
    """A list of objects with check, level, message and remedy."""
    return json.dumps(msgspec.to_builtins(findings), indent=2)
