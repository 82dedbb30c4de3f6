"""Whether the certificates by which nodes prove who they are end soon, and the CA of them.

The GlobalManager reads the CA from a ConfigMap. The certificate of a node is a file of the node.
The GlobalManager sees it at each new session, and writes the day of its end beside the session.
"""

from collections.abc import Iterator
from datetime import date
from itertools import chain
from typing import Final

from cryptography.x509 import Certificate, load_pem_x509_certificates

from edgeai.api.resources import CONFIG_MAPS, DEPLOYMENTS, Object
from edgeai.cli.doctor.certificates import CA as SERVER_CA
from edgeai.cli.doctor.edges import nodes_served
from edgeai.cli.doctor.facts import Facts
from edgeai.cli.doctor.files import mounted
from edgeai.cli.doctor.finding import MAX_NAMED, Note
from edgeai.cli.doctor.parts import MANAGER, part_of
from edgeai.ids import NodeName
from globalmanager.ha.elector import LEASES
from globalmanager.rest.certificates import ENDS_SOON, NODE_REMEDY, end_in_words, ends_soon

_KEY: Final = "ca.crt"
_CA_REMEDY: Final = (
    "add the next CA to ca.crt beside it, give the nodes certificates of the next CA, and take the "
    "old one out then (docs/identity.md)"
)
_READ_REMEDY: Final = "replace ca.crt by the CA of the nodes' certificates, as PEM"


def node_certificates(facts: Facts) -> Iterator[Note]:
    managers = part_of(facts.of(DEPLOYMENTS), MANAGER)
    names = {
        name for manager in managers for source, name in mounted(manager) if source == "configMap"
    }
    bundles = [
        config_map
        for config_map in facts.of(CONFIG_MAPS)
        if config_map["metadata"]["name"] in names - {SERVER_CA}
        and _KEY in (config_map.get("data") or {})
    ]
    if not bundles:
        yield "ok", "nodes prove who they are without certificates"
        return
    is_good = True
    for problem in chain(_authorities(facts, bundles), _nodes(facts)):
        is_good = False
        yield problem
    if is_good:
        yield "ok", "no CA of the nodes and no certificate of a connected node ends soon"


def _authorities(facts: Facts, bundles: list[Object]) -> Iterator[Note]:
    for bundle in bundles:
        name = f"ConfigMap {facts.namespace}/{bundle['metadata']['name']}"
        try:
            certificates = load_pem_x509_certificates(str(bundle["data"][_KEY]).encode())
        except ValueError as error:
            yield "error", f"{name}: {_KEY} cannot be read: {error}", _READ_REMEDY
            continue
        expired = [one for one in certificates if one.not_valid_after_utc <= facts.clock]
        if len(expired) == len(certificates):
            problem = _end(expired[-1], facts.clock.date())
            yield "error", f"{name}: {problem}, so no node gets a session", _CA_REMEDY
            continue
        for one in certificates:
            if one not in expired and one.not_valid_after_utc < facts.clock + ENDS_SOON:
                problem = _end(one, facts.clock.date())
                yield "warning", f"{name}: {problem}; then its nodes get no session", _CA_REMEDY


def _end(authority: Certificate, today: date) -> str:
    name = authority.subject.rfc4514_string() or "the CA"
    return f"{name} {end_in_words(authority.not_valid_after_utc.date(), today)}"


def _nodes(facts: Facts) -> Iterator[Note]:
    sessions = nodes_served(facts.of(LEASES), facts.of(CONFIG_MAPS), facts.clock)
    today = facts.clock.date()
    ends: list[tuple[date, NodeName]] = sorted(
        (claim.certificate_ends_on, node)
        for node, claim in sessions.items()
        if claim.certificate_ends_on is not None and ends_soon(claim.certificate_ends_on, today)
    )
    for ends_on, node in ends[:MAX_NAMED]:
        words = end_in_words(ends_on, today)
        message = f"the certificate of node {node}, or its CA, {words}; then it gets no session"
        yield "warning", message, NODE_REMEDY
    if len(ends) > MAX_NAMED:
        more = len(ends) - MAX_NAMED
        yield "warning", f"the certificates of {more} further nodes end soon", NODE_REMEDY
