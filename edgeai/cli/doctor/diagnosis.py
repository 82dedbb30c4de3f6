"""Finds the cluster, reads the facts, makes all checks, shows what they have found.

Each check is a pure function of the facts, and tells at least one thing, also when all is well.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.table import Table
from rich.text import Text

from edgeai import times
from edgeai.cli.doctor.definitions import definitions, kubernetes
from edgeai.cli.doctor.edges import edges
from edgeai.cli.doctor.facts import AskAbout, Facts, gather
from edgeai.cli.doctor.finding import INSTALL, Finding, Note, look
from edgeai.cli.doctor.managers import clocks, leader, managers, rights
from edgeai.cli.doctor.mounts import certificates, files, node_certificates
from edgeai.client.asynchronous import OF_A_USER
from edgeai.errors import EdgeAIError, InvalidName, SettingsError
from edgeai.ids import is_subdomain
from edgeai.kube.errors import ApiError, Forbidden
from edgeai.kube.remedies import OF_A_COMMAND
from edgeai.kube.sender import ClientSettings
from edgeai.kube.user import UserClient
from edgeai.text import printable
from globalmanager.ha.claims import ClaimsError

_STYLES: Final = {"ok": "green", "warning": "yellow", "error": "red", "unknown": "dim"}
DEADLINE_S: Final = 30.0
CHECKS: Final[dict[str, Callable[[Facts], Iterator[Note]]]] = {
    "kubernetes": kubernetes,
    "definitions": definitions,
    "files": files,
    "rights": rights,
    "globalmanager": managers,
    "leader": leader,
    "clocks": clocks,
    "certificates": certificates,
    "node certificates": node_certificates,
    "edges": edges,
}
"""In the order in which a reader should repair what they find."""
_ELSEWHERE: Final = "or name the namespace of your installation with --namespace"
_ODD: Final = (AttributeError, KeyError, RuntimeError, TypeError, ValueError)


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


def findings(facts: Facts) -> list[Finding]:
    """What all checks have found. One that the caller may not make is unknown."""
    if facts.is_namespace_there is False:
        message = f"namespace {facts.namespace} does not exist, so edgeai is not installed in it"
        return [Finding("globalmanager", "error", message, f"{INSTALL}; {_ELSEWHERE}")]
    findings = []
    for name, check in CHECKS.items():
        try:
            for entry in check(facts):  # what was told before an exception stays
                findings.append(Finding(name, *entry))
        except Forbidden as denied:
            message = denied.message or str(denied)
            findings.append(Finding(name, "unknown", message, OF_A_COMMAND.missing_right))
        except ClaimsError as error:
            message = f"a ConfigMap of a GlobalManager cannot be read: {error}"
            findings.append(Finding(name, "error", message, look(facts)))
        except _ODD as error:
            message = f"an object has a form that no API server keeps: {type(error).__name__}"
            findings.append(Finding(name, "unknown", f"{message}: {error}"))
    return findings


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
