"""Whether the certificates of the edge port are valid, and edges trust who has signed them."""

import base64
import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.x509 import Certificate, load_pem_x509_certificates

from common.times import rfc3339
from edgeai.doctor.facts import Facts
from edgeai.doctor.finding import Level, Told, readable

RENEW: Final = "replace the Secret as in docs/install.md, section 3; the files are read again"
CA: Final = "globalmanager-ca"
TLS_SECRET: Final = "kubernetes.io/tls"
ENDS_SOON: Final = timedelta(days=14)


def certificates(facts: Facts) -> Iterator[Told]:
    """The certificates of the edge port, in the Secrets of type kubernetes.io/tls."""
    secrets = [each for each in readable(facts.secrets) if each.get("type") == TLS_SECRET]
    authorities = _authorities(facts)
    good = 0
    for secret in secrets:
        name = f"Secret {facts.namespace}/{secret['metadata']['name']}"
        try:
            chain = certificates_in((secret.get("data") or {}).get("tls.crt", ""))
        except ValueError as error:
            yield "error", f"{name}: tls.crt cannot be read: {error}", RENEW
            continue
        told = _certificate_problem(chain, authorities, facts.now)
        if told is None:
            good += 1
        else:
            yield told[0], f"{name}: {told[1]}", RENEW
    if good == len(secrets):
        kept = f"{good} certificates are valid" if good else "no certificate is in this namespace"
        yield "ok", kept


def _certificate_problem(
    chain: Sequence[Certificate], authorities: Sequence[Certificate], now: datetime
) -> tuple[Level, str] | None:
    leaf = chain[0]
    if now < leaf.not_valid_before_utc:
        return (
            "error",
            f"its certificate is valid only from {rfc3339(leaf.not_valid_before_utc)} on",
        )
    left = leaf.not_valid_after_utc - now
    until = rfc3339(leaf.not_valid_after_utc)
    if left <= timedelta():
        return "error", f"its certificate ended at {until}, so edges refuse the GlobalManager"
    last = chain[-1]
    is_trusted = any(last == each or _has_signed(each, last) for each in authorities)
    if authorities and not is_trusted:
        issuer = last.issuer.rfc4514_string()
        return "error", f"{issuer} has signed its certificate, and ConfigMap {CA} has no such CA"
    if left < ENDS_SOON:
        return "warning", f"its certificate ends at {until}"
    return None


def _authorities(facts: Facts) -> tuple[Certificate, ...]:
    """The CAs that edges trust; none when the ConfigMap is missing, which another check tells."""
    for each in readable(facts.config_maps):
        if each["metadata"]["name"] == CA:
            with contextlib.suppress(ValueError):
                text = (each.get("data") or {}).get("ca.crt", "")
                return tuple(load_pem_x509_certificates(text.encode()))
    return ()


def certificates_in(data: str) -> list[Certificate]:
    """The chain in base64 of PEM, the leaf first. Raises: ValueError when there is none"""
    return load_pem_x509_certificates(base64.b64decode(data, validate=True))


def _has_signed(authority: Certificate, certificate: Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
