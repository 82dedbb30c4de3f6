"""What proves to the GlobalManager who this node is, and to the node that it is the GlobalManager.

The link asks for it at each dial, for tokens and certificates are rotated. The newest content that
could be used stays in memory, for an edgecore that restarts takes the mounted files away from a
container that runs. `defect` says what is wrong with the files now.
"""

import base64
import contextlib
import hashlib
import re
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from common import times
from common.errors import EdgeAIError

TOKEN: Final = re.compile(r"[!-~]+")


class CredentialError(EdgeAIError):
    """A file of this node cannot be used. Names the file, never its content."""


class CredentialLost(EdgeAIError):
    """The files are of no use any more; a restarted container gets new ones. Exit code 4."""


class Shown(NamedTuple):
    """What a dial shows."""

    headers: dict[str, str]
    """Of the HTTP request."""
    tls: ssl.SSLContext | None
    """None: without TLS."""


class _Claims(msgspec.Struct, frozen=True):
    """Of a JSON Web Token (RFC 7519, 4.1.4)."""

    exp: float | None = None


class Defect(NamedTuple):
    """What is wrong with the files."""

    text: str
    """Names the file."""
    is_by_clock: bool
    """The file can be used, but has expired if this node's clock is right."""


class Credentials:
    """Args: files of this node; None: not configured."""

    def __init__(
        self,
        *,
        token_file: Path | None = None,
        ca_file: Path | None = None,
        client_certificate: Path | None = None,
        client_key: Path | None = None,
    ) -> None:
        self.client_certificate = client_certificate
        self._token_file = token_file
        self._ca_file = ca_file
        self._client_key = client_key
        self._last: Shown | None = None  # the newest that could be loaded
        self._digests: dict[Path, bytes] = {}  # of each file's newest content

    def load(self, *, is_secure: bool) -> Shown:
        """What the files hold now. Raises: CredentialError"""
        headers = {}
        if self._token_file is not None:
            headers["Authorization"] = f"Bearer {read_token(self._token_file)}"
        self._last = Shown(headers, self.tls() if is_secure else None)
        return self._last

    def newest(self, *, is_secure: bool) -> Shown:
        """What the files hold now, else what they held when they could be used last.

        Raises: CredentialError where they never could
        """
        try:
            return self.load(is_secure=is_secure)
        except CredentialError:
            if self._last is None:
                raise
            return self._last

    def tls(self) -> ssl.SSLContext:
        """Of the files as they are now. Raises: CredentialError"""
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise CredentialError(f"CA file {self._ca_file}: {_reason(error)}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.client_certificate is not None:
            self._load_certificate(context, self.client_certificate)
        return context

    def _load_certificate(self, context: ssl.SSLContext, certificate: Path) -> None:
        try:
            context.load_cert_chain(certificate, self._client_key, password=_no_password)
        except (OSError, ValueError) as error:
            raise CredentialError(
                f"client certificate {certificate} with key {self._client_key}: {_reason(error)}"
            ) from error

    def digest(self) -> bytes:
        """Another one once a file of what proves who we are has another content.

        A file that cannot be read counts with the content that it had before.
        """
        sha256 = hashlib.sha256()
        for path in (self._token_file, self.client_certificate, self._client_key):
            sha256.update(b"\0" if path is None else self._content(path))
        return sha256.digest()

    def _content(self, path: Path) -> bytes:
        with contextlib.suppress(OSError):
            self._digests[path] = hashlib.sha256(path.read_bytes()).digest()
        return self._digests.get(path, b"")

    def defect(self, now: datetime) -> Defect | None:
        """What is wrong with files that could be used before. None: nothing, or they never could.

        Args: now: UTC
        """
        if self._last is None:
            return None
        try:
            token = None if self._token_file is None else read_token(self._token_file)
            for path in (self._ca_file, self.client_certificate, self._client_key):
                _check_readable(path)
        except CredentialError as error:
            return Defect(str(error), is_by_clock=False)
        expiry = None if token is None else _expiry(token)
        if expiry is None or now < expiry:
            return None
        text = f"token file {self._token_file}: its token expired at {times.rfc3339(expiry)}"
        return Defect(text, is_by_clock=True)


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


def _expiry(token: str) -> datetime | None:
    """When a JSON Web Token ends; None for a token of another form, or one without an end."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        end_s = msgspec.json.decode(claims, type=_Claims).exp
        return None if end_s is None else datetime.fromtimestamp(end_s, UTC)
    except (ValueError, OverflowError, OSError, RecursionError):  # msgspec's are ValueErrors
        return None


def _check_readable(path: Path | None) -> None:
    if path is None:
        return
    try:
        path.open("rb").close()
    except OSError as error:
        raise CredentialError(f"file {path}: {error.strerror}") from error


def _no_password() -> str:
    raise ValueError("the key has a password; give it without one")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
