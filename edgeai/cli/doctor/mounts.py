"""Whether the Secrets and ConfigMaps that pods mount are there, and their certificates valid."""

import base64
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from itertools import chain
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509 import Certificate, load_pem_x509_certificates

from edgeai.api.objects import label_of
from edgeai.api.resources import CONFIG_MAPS, DEPLOYMENTS, SECRETS, Object
from edgeai.cli.doctor.edges import nodes_served
from edgeai.cli.doctor.facts import CONTROLLER, DAEMON_SETS, MANAGER, NAME_LABEL, Facts, part_of
from edgeai.cli.doctor.finding import INSTALL, MAX_NAMED, Level, Note
from edgeai.ids import NodeName
from edgeai.times import rfc3339
from globalmanager.ha.elector import LEASES
from globalmanager.rest.certificates import ENDS_SOON, NODE_REMEDY, end_in_words, ends_soon

RENEW: Final = (
    "type edgeai credentials if it has created the Secret, else replace the Secret; the files are "
    "read again"
)
CA: Final = "globalmanager-ca"
_KEY: Final = "ca.crt"
_CA_REMEDY: Final = (
    "add the next CA to ca.crt beside it, give the nodes certificates of the next CA, and take the "
    "old one out then (docs/identity.md)"
)
_READ_REMEDY: Final = "replace ca.crt by the CA of the nodes' certificates, as PEM"


def files(facts: Facts) -> Iterator[Note]:
    """A pod whose Secret or ConfigMap is missing waits without a word in its status."""
    present = {
        "secret": {secret["metadata"]["name"] for secret in facts.of(SECRETS)},
        "configMap": {config_map["metadata"]["name"] for config_map in facts.of(CONFIG_MAPS)},
    }
    absent = [
        (owner, source, name)
        for owner in (*facts.of(DEPLOYMENTS), *facts.of(DAEMON_SETS))
        if (part := label_of(owner, NAME_LABEL)) == MANAGER or part.startswith(CONTROLLER)
        for source, name in mounted(owner)
        if name not in present[source]
    ]
    for owner, source, name in absent:
        kind = "Secret" if source == "secret" else "ConfigMap"
        message = f"{kind} {facts.namespace}/{name} is missing"
        yield "error", f"{message}, which the pods of {owner['metadata']['name']} mount", INSTALL
    if not absent:
        yield "ok", "all Secrets and ConfigMaps that pods mount are there"


def mounts_of_managers(facts: Facts, source: str) -> set[str]:
    """The names of what GlobalManagers mount. Args: source: "secret" or "configMap" """
    managers = part_of(facts.of(DEPLOYMENTS), MANAGER)
    return {name for manager in managers for kind, name in mounted(manager) if kind == source}


def mounted(owner: Object) -> Iterator[tuple[str, str]]:
    """("secret" or "configMap", name) of each volume that must be there before a pod starts."""
    for volume in owner["spec"]["template"]["spec"].get("volumes") or ():
        sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
        for entry in sources:
            for source, field in (("secret", "secretName"), ("configMap", "name")):
                reference = entry.get(source) or {}
                name = reference.get(field) or reference.get("name")
                if name and not reference.get("optional"):
                    yield source, name


def certificates(facts: Facts) -> Iterator[Note]:
    """The certificates of the edge port, in the Secrets that the GlobalManager mounts, and whether
    edges trust who has signed them.
    """
    mounts = mounts_of_managers(facts, "secret")
    try:
        authorities = _authorities(facts)
    except ValueError as error:
        yield "error", f"ConfigMap {facts.namespace}/{CA}: ca.crt cannot be read: {error}", RENEW
        return
    good = bad = 0
    for secret in facts.of(SECRETS):
        data = secret.get("data") or {}
        if secret["metadata"]["name"] not in mounts or "tls.crt" not in data:
            continue
        name = f"Secret {facts.namespace}/{secret['metadata']['name']}"
        try:
            text = base64.b64decode(data["tls.crt"], validate=True)
            leaf_first = load_pem_x509_certificates(text)
            problem = _chain_problem(leaf_first, authorities, facts.clock)
        except ValueError as error:
            problem = "error", f"tls.crt cannot be read: {error}"
        if problem is None:
            good += 1
        else:
            bad += 1
            yield problem[0], f"{name}: {problem[1]}", RENEW
    if not bad:
        none = "the GlobalManager mounts no certificate"
        yield "ok", f"{good} valid certificates" if good else none


def _chain_problem(
    chain: Sequence[Certificate], authorities: Sequence[Certificate], now: datetime
) -> tuple[Level, str] | None:
    """What is wrong from the leaf to an authority that edges trust; without one, of the leaf."""
    current, others = chain[0], list(chain[1:])
    while True:
        if problem := _date_problem(current, now):
            return problem
        issuers = [one for one in authorities if one == current or _has_signed(one, current)]
        if issuers or not authorities:
            return _date_problem(issuers[0], now) if issuers else None
        following = next((other for other in others if _has_signed(other, current)), None)
        if following is None:
            issuer = current.issuer.rfc4514_string()
            return "error", f"{issuer} has signed it, and ConfigMap {CA} has no such CA"
        others.remove(following)
        current = following


def _date_problem(certificate: Certificate, now: datetime) -> tuple[Level, str] | None:
    name = certificate.subject.rfc4514_string() or "the certificate"
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begins:
        return "error", f"{name} is valid only from {rfc3339(begins)} on"
    if ends <= now:
        return "error", f"{name} ended at {rfc3339(ends)}, so edges refuse the GlobalManager"
    if ends < now + ENDS_SOON:
        return "warning", f"{name} ends at {rfc3339(ends)}"
    return None


def _authorities(facts: Facts) -> tuple[Certificate, ...]:
    """The CAs that edges trust; another check tells when there are none. Raises: ValueError"""
    for config_map in facts.of(CONFIG_MAPS):
        if config_map["metadata"]["name"] == CA:
            text = (config_map.get("data") or {}).get("ca.crt") or ""
            return tuple(load_pem_x509_certificates(text.encode()))
    return ()


def _has_signed(authority: Certificate, certificate: Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def node_certificates(facts: Facts) -> Iterator[Note]:
    """Whether the certificates by which nodes prove who they are end soon, and the CA of them.

    The GlobalManager reads the CA from a ConfigMap. The certificate of a node is a file of the
    node. The GlobalManager sees it at each new session, and writes the day of its end beside it.
    """
    names = mounts_of_managers(facts, "configMap") - {CA}
    bundles = [
        one
        for one in facts.of(CONFIG_MAPS)
        if one["metadata"]["name"] in names and _KEY in (one.get("data") or {})
    ]
    if not bundles:
        yield "ok", "nodes prove who they are without certificates"
        return
    problem = None
    for problem in chain(_node_authorities(facts, bundles), _node_ends(facts)):
        yield problem
    if problem is None:
        yield "ok", "no CA of the nodes and no certificate of a connected node ends soon"


def _node_authorities(facts: Facts, bundles: list[Object]) -> Iterator[Note]:
    for bundle in bundles:
        name = f"ConfigMap {facts.namespace}/{bundle['metadata']['name']}"
        try:
            authorities = load_pem_x509_certificates(str(bundle["data"][_KEY]).encode())
        except ValueError as error:
            yield "error", f"{name}: {_KEY} cannot be read: {error}", _READ_REMEDY
            continue
        expired = [one for one in authorities if one.not_valid_after_utc <= facts.clock]
        if len(expired) == len(authorities):
            problem = _end(expired[-1], facts.clock.date())
            yield "error", f"{name}: {problem}, so no node gets a session", _CA_REMEDY
            continue
        for one in authorities:
            if one not in expired and one.not_valid_after_utc < facts.clock + ENDS_SOON:
                problem = _end(one, facts.clock.date())
                yield "warning", f"{name}: {problem}; then its nodes get no session", _CA_REMEDY


def _end(authority: Certificate, today: date) -> str:
    name = authority.subject.rfc4514_string() or "the CA"
    return f"{name} {end_in_words(authority.not_valid_after_utc.date(), today)}"


def _node_ends(facts: Facts) -> Iterator[Note]:
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
