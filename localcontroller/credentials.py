"""What proves to the GlobalManager who this node is, and to the node that it is the GlobalManager.

Read by the link at each dial, for tokens and certificates are rotated; nothing of it is kept but
a digest, which tells whether the credential that was shown has been replaced since.
"""

import hashlib
import re
import ssl
from pathlib import Path
from typing import Final

import msgspec

from common.errors import EdgeAIError

TOKEN: Final = re.compile(r"[!-~]+")


class CredentialError(EdgeAIError):
    """A file of this node cannot be used. Names the file, never its content."""


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Files; None: not configured."""

    token_file: Path | None = None
    ca_file: Path | None = None
    client_certificate: Path | None = None
    client_key: Path | None = None

    def headers(self) -> dict[str, str]:
        """Raises: CredentialError"""
        if self.token_file is None:
            return {}
        return {"Authorization": f"Bearer {read_token(self.token_file)}"}

    def tls(self) -> ssl.SSLContext:
        """For one dial. Raises: CredentialError"""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise CredentialError(f"CA file {self.ca_file}: {_reason(error)}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.client_certificate is not None:
            self._load_certificate(context, self.client_certificate)
        return context

    def _load_certificate(self, context: ssl.SSLContext, certificate: Path) -> None:
        try:
            context.load_cert_chain(certificate, self.client_key, password=_no_password)
        except (OSError, ValueError) as error:
            raise CredentialError(
                f"client certificate {certificate} with key {self.client_key}: {_reason(error)}"
            ) from error

    def digest(self) -> bytes:
        """Another one once a file of what proves who we are has another content."""
        sha256 = hashlib.sha256()
        for path in (self.token_file, self.client_certificate, self.client_key):
            sha256.update(b"\0" if path is None else _content(path))
        return sha256.digest()


def read_token(file: Path) -> str:
    """Raises: CredentialError"""
    try:
        token = file.read_text(encoding="ascii").strip()
    except OSError as error:
        raise CredentialError(f"token file {file}: {error.strerror}") from error
    except UnicodeDecodeError:  # not chained: it quotes what it could not decode
        token = ""
    if not TOKEN.fullmatch(token):
        raise CredentialError(f"token file {file}: it is not one word of printable ASCII")
    return token


def _content(path: Path) -> bytes:
    try:
        return hashlib.sha256(path.read_bytes()).digest()
    except OSError:
        return b""


def _no_password() -> str:
    raise ValueError("the key has a password; give it without one")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
