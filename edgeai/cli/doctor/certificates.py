"""Whether the certificates of the edge port are valid, and edges trust who has signed them."""

import base64
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509 import Certificate, load_pem_x509_certificates

from edgeai.api.resources import CONFIG_MAPS, DEPLOYMENTS, SECRETS
from edgeai.cli.doctor.facts import Facts
from edgeai.cli.doctor.files import mounted
from edgeai.cli.doctor.finding import Level, Note
from edgeai.cli.doctor.parts import MANAGER, part_of
from edgeai.times import rfc3339
from globalmanager.rest.certificates import ENDS_SOON

RENEW: Final = (
    "type edgeai credentials if it has created the Secret, else replace the Secret; the files are "
    "read again"
)
CA: Final = "globalmanager-ca"


def certificates(facts: Facts) -> Iterator[Note]:
    """The certificates of the edge port, in the Secrets that the GlobalManager mounts."""
    managers = part_of(facts.of(DEPLOYMENTS), MANAGER)
    mounts = {
        name for manager in managers for source, name in mounted(manager) if source == "secret"
    }
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
            problem = _chain_problem(certificates_in(data["tls.crt"]), authorities, facts.clock)
        except ValueError as error:
            problem = "error", f"tls.crt cannot be read: {error}"
        if problem is None:
            good += 1
        else:
            bad += 1
            yield problem[0], f"{name}: {problem[1]}", RENEW
    if not bad:
        summary = (
            f"{good} valid certificates" if good else "the GlobalManager mounts no certificate"
        )
        yield "ok", summary


def _chain_problem(
    chain: Sequence[Certificate], authorities: Sequence[Certificate], now: datetime
) -> tuple[Level, str] | None:
    """What is wrong on the way from the leaf to an authority that edges trust. Where none is known,
    the leaf alone is looked at.
    """
    current, others = chain[0], list(chain[1:])
    while True:
        if problem := _date_problem(current, now):
            return problem
        issuers = [
            authority
            for authority in authorities
            if authority == current or _has_signed(authority, current)
        ]
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
    """The CAs that edges trust; none where the ConfigMap is missing, which another check tells.
    Raises: ValueError
    """
    for config_map in facts.of(CONFIG_MAPS):
        if config_map["metadata"]["name"] == CA:
            text = (config_map.get("data") or {}).get("ca.crt") or ""
            return tuple(load_pem_x509_certificates(text.encode()))
    return ()


def certificates_in(data: str) -> list[Certificate]:
    """The chain in base64 of PEM, the leaf first. Raises: ValueError when there is none"""
    return load_pem_x509_certificates(base64.b64decode(data, validate=True))


def _has_signed(authority: Certificate, certificate: Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True
