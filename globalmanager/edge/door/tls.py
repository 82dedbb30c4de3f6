"""TLS of the edge port. An administrator may replace the certificate files while sessions go on:
each TLS handshake reads changed files. While these cannot be used, the old ones stay in use.

OpenSSL does not verify a resumed TLS session again, although its CA may have been removed from the
bundle. So the server issues no session tickets. A session that was resumed by its id (TLS 1.2)
counts as a session without a client certificate.
"""

import hashlib
import math
import ssl
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from common.logs import get_logger
from edgeai.errors import SettingsError
from globalmanager.edge.identity.files import Stamp, stamp
from globalmanager.edge.identity.handshake import PeerCertificate

log = get_logger(__name__)

_DER: Final = 2  # OpenSSL calls this value X509_FILETYPE_ASN1


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Paths of the PEM files of the edge port."""

    certificate: Path
    """The server's certificate with its intermediate certificates."""
    key: Path
    client_ca: Path | None = None
    """The CAs of client certificates; None: the server asks for no client certificate."""

    def paths(self) -> list[Path]:
        return [path for path in (self.certificate, self.key, self.client_ca) if path is not None]


class ServerTls:
    """Gives each new connection an SSL context made from the newest usable files.

    Raises: SettingsError when the files cannot be used at the start
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._stamps = self._file_stamps()
        self._use(server_context(files))

    def context(self) -> ssl.SSLContext:
        """The SSL context for a handshake. All share it until the files change."""
        self._reload_if_changed()
        return self._context

    def expires_at(self) -> float:
        """When the first of the server's and its intermediate certificates ends, Unix seconds."""
        self._reload_if_changed()
        return self._expires_at

    def trusts(self, anchor: bytes) -> bool:
        """Whether the bundle now has the CA certificate with this SHA-256."""
        self._reload_if_changed()
        return anchor in self._anchors

    def _use(self, context: ssl.SSLContext) -> None:
        self._context = context
        self._anchors = anchors_of(context)
        self._expires_at = _first_end(self._files.certificate)

    def _file_stamps(self) -> list[Stamp | None]:
        return [stamp(path) for path in self._files.paths()]

    def _reload_if_changed(self) -> None:
        stamps = self._file_stamps()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._use(server_context(self._files))
        except SettingsError as error:
            log.error("TLS files kept as they were before", problem=str(error))
        else:
            log.info("TLS files read", files=[str(path) for path in self._files.paths()])


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """The SSL context with these files. Raises: SettingsError that names the file"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise _unusable(f"{files.certificate} with key {files.key}", error) from error
    if files.client_ca is not None:
        _ask_for_certificates(context, files.client_ca)
    return context


def _ask_for_certificates(context: ssl.SSLContext, bundle: Path) -> None:
    """Make the context ask clients for their certificates. Raises: SettingsError"""
    try:
        context.load_verify_locations(bundle)
    except (OSError, ValueError) as error:
        raise _unusable(str(bundle), error) from error
    if not anchors_of(context):
        raise SettingsError(f"TLS file {bundle}", "holds no CA certificate")
    # A client certificate is optional for TLS. So a client without a certificate gets a clear 401,
    # and a health probe needs no certificate. A bad certificate ends the TLS handshake.
    context.verify_mode = ssl.CERT_OPTIONAL


def _no_password() -> str:
    raise ValueError("the key is encrypted; use one without a password")


def _unusable(files: str, error: Exception) -> SettingsError:
    return SettingsError(f"TLS file {files}", f"cannot be used: {reason_of(error)}")


def reason_of(error: Exception) -> str:
    """OpenSSL's text for a failure: "certificate verify failed: certificate has expired"."""
    if not isinstance(error, ssl.SSLError):
        return getattr(error, "strerror", None) or str(error)
    reason = (error.reason or str(error)).replace("_", " ").lower()
    detail = getattr(error, "verify_message", "")
    return f"{reason}: {detail}" if detail else reason


def _first_end(file: Path) -> float:
    """When the first of the certificates in a PEM file ends, Unix seconds. Not a number when the
    file has changed since OpenSSL could use it.

    The standard library reads a leaf from a file only by a private function. The public library
    cryptography takes 9 MiB.
    """
    decode: Any = ssl._ssl._test_decode_cert  # type: ignore[attr-defined]
    try:
        leaf = decode(str(file))
        issuers = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        issuers.load_verify_locations(file)
    except (OSError, ValueError):
        return math.nan
    chain = (leaf, *issuers.get_ca_certs())
    return min(ssl.cert_time_to_seconds(str(link["notAfter"])) for link in chain)


def anchors_of(context: ssl.SSLContext) -> frozenset[bytes]:
    """SHA-256 of each CA certificate that the SSL context trusts."""
    return frozenset(hashlib.sha256(der).digest() for der in context.get_ca_certs(binary_form=True))


class _Certificate(Protocol):
    """A certificate object of the interpreter's private module _ssl."""

    def get_info(self) -> dict[str, Any]: ...
    def public_bytes(self, format: int) -> bytes: ...


def peer_certificate(connection: ssl.SSLObject | None) -> PeerCertificate | None:
    """The verified client certificate; None without TLS, or when the client sent none."""
    if connection is None or not connection.getpeercert():
        return None
    chain = _verified_chain(connection)
    if not chain:
        return None
    leaf = chain[0].get_info()
    return PeerCertificate(
        common_names=tuple(
            value
            for part in leaf.get("subject", ())
            for name, value in part
            if name == "commonName"
        ),
        dns_names=tuple(value for kind, value in leaf.get("subjectAltName", ()) if kind == "DNS"),
        expires_at=min(ssl.cert_time_to_seconds(link.get_info()["notAfter"]) for link in chain),
        anchor=hashlib.sha256(chain[-1].public_bytes(_DER)).digest(),
    )


def _verified_chain(connection: ssl.SSLObject) -> list[_Certificate]:
    """The certificate chain, leaf first and CA last. Empty for a resumed TLS session.

    Python 3.13 added a public function for the chain. The standard library cannot parse the bytes
    that the public function returns. The private function in this code exists since Python 3.10.
    """
    inner: Any = connection._sslobj  # type: ignore[attr-defined]
    chain: list[_Certificate] | None = inner.get_verified_chain()
    return chain or []
