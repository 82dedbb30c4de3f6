"""All checks, in the order in which a reader should repair what they find.

Each check is a pure function of the facts. It tells at least one thing, also when all is well, so
that a reader sees what was looked at.
"""

from collections.abc import Callable, Iterator
from typing import Final

from edgeai.cli.doctor.certificates import certificates
from edgeai.cli.doctor.definitions import definitions, kubernetes
from edgeai.cli.doctor.edges import edges
from edgeai.cli.doctor.facts import Facts
from edgeai.cli.doctor.files import files
from edgeai.cli.doctor.finding import INSTALL, Finding, Note, look
from edgeai.cli.doctor.managers import clocks, leader, managers, rights
from edgeai.cli.doctor.node_certificates import node_certificates
from edgeai.kube.errors import Forbidden
from edgeai.kube.remedies import OF_A_COMMAND
from globalmanager.ha.claims import ClaimsError

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
_ELSEWHERE: Final = "or name the namespace of your installation with --namespace"
_ODD: Final = (AttributeError, KeyError, RuntimeError, TypeError, ValueError)


def findings(facts: Facts) -> list[Finding]:
    """What all checks have found. A check that the caller may not make is unknown. Without the
    namespace nothing is there that could be looked at.
    """
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
