"""Checks the settings of the edge port: TLS, admission limits, and the authentication of nodes."""

from pathlib import Path
from typing import assert_never
from urllib.parse import urlsplit

from common import wire
from common.settings import flag_error
from edgeai.ids import is_subdomain
from globalmanager.edge.door.admission import AdmissionLimits
from globalmanager.edge.door.tls import ServerTls, TlsFiles
from globalmanager.edge.identity.certificates import CertificateAuthenticator
from globalmanager.edge.identity.handshake import Authenticator
from globalmanager.edge.identity.node_tokens import TokenAuthenticator
from globalmanager.edge.identity.service_accounts import (
    Cluster,
    ReviewLimits,
    ServiceAccount,
    ServiceAccountAuthenticator,
)
from globalmanager.settings import Settings


class DoorConfiguration:
    """The checked settings of the edge port. Raises: SettingsError that names the flag or file"""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._account = service_account(settings.edge_service_account)
        self._tokens = _token_table(settings)
        if not 0 < settings.edge_review_s < float("inf"):
            raise flag_error("edge_review_s", "must be positive and finite")
        files = tls_files(settings)
        self.tls = None if files is None else ServerTls(files)
        """TLS of the edge port. None when the edge port speaks plain ws."""
        self.limits = _limits(settings)
        # Where the edge port speaks plain ws, a proxy before it may speak TLS.
        _check_url(settings.edge_url, ("wss",) if self.tls else ("ws", "wss"))

    def authenticator(self, cluster: Cluster) -> Authenticator:
        """The authenticator of nodes that the setting edge_auth selects."""
        match self._settings.edge_auth:
            case "token":
                assert self._tokens is not None
                return self._tokens
            case "serviceaccount":
                # A handshake needs two requests, so all use at most half of the rate.
                limits = ReviewLimits(per_s=self._settings.qps / 4)
                return ServiceAccountAuthenticator(cluster, self._account, limits=limits)
            case "mtls":
                assert self.tls is not None
                return CertificateAuthenticator(self.tls)
            case other:
                assert_never(other)


def tls_files(settings: Settings) -> TlsFiles | None:
    """The TLS files of the edge port; None for plain ws, if allowed. Raises: SettingsError"""
    certificate, key = settings.edge_tls_certificate, settings.edge_tls_key
    if bool(certificate) != bool(key):
        raise flag_error("edge_tls_certificate", "and --edge-tls-key must be given together")
    mutual = settings.edge_auth == "mtls"
    if mutual != bool(settings.edge_client_ca):
        raise flag_error("edge_client_ca", "and --edge-auth mtls must be given together")
    if settings.edge_plaintext == "allow":
        if certificate or mutual:
            raise flag_error("edge_plaintext", "allow contradicts TLS; leave one of them out")
        return None
    if not certificate:
        raise flag_error(
            "edge_tls_certificate",
            "is required, with --edge-tls-key; only on loopback or behind a proxy that ends TLS "
            "say --edge-plaintext allow instead",
        )
    client_ca = Path(settings.edge_client_ca) if mutual else None
    return TlsFiles(certificate=Path(certificate), key=Path(key), client_ca=client_ca)


def service_account(text: str) -> ServiceAccount:
    """The ServiceAccount in a setting like "namespace/name". Raises: SettingsError"""
    namespace, _, name = text.partition("/")
    if not (is_subdomain(namespace) and is_subdomain(name)):
        raise flag_error("edge_service_account", f"{text!r} is no NAMESPACE/NAME")
    return ServiceAccount(namespace, name)


def _check_url(url: str, schemes: tuple[str, ...]) -> None:
    """Raises: SettingsError"""
    if not url:
        return
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in schemes and bool(parts.hostname) and parts.port is not None
    except ValueError:
        is_address = False
    if not is_address or parts.username or parts.fragment:
        expected = " or ".join(f"{scheme}://HOST:PORT" for scheme in schemes)
        raise flag_error("edge_url", f"{url!r} is no {expected}")
    if len(url.encode()) > wire.MAX_REASON_BYTES:
        raise flag_error("edge_url", f"is longer than {wire.MAX_REASON_BYTES} bytes")


def _limits(settings: Settings) -> AdmissionLimits:
    per_s = settings.admissions_per_s
    per_address_per_s = max(1.0, per_s * settings.admissions_address_share)
    return AdmissionLimits(
        per_s=per_s,
        burst=max(1, round(2 * per_s)),
        per_address_per_s=per_address_per_s,
        per_address_burst=round(2 * per_address_per_s),
    )


def _token_table(settings: Settings) -> TokenAuthenticator | None:
    if settings.edge_auth != "token":
        return None
    if not settings.edge_token_file:
        raise flag_error(
            "edge_token_file",
            "is required with --edge-auth token: a file of lines `<node> <sha256 of its token>`",
        )
    return TokenAuthenticator(Path(settings.edge_token_file))
