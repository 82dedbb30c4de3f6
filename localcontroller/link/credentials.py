"""Reads the files that authenticate this node and the GlobalManager: token, certificate, key, CA.

The link reads the files at each dial, because tokens and certificates are rotated. The newest
usable content stays in memory, because a restarted edgecore may remove the mounted files of a
container, or mount another pod's token, which is never presented. `problem` says what is wrong.
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

from common.wire import AUDIENCE
from edgeai import times
from edgeai.errors import EdgeAIError
from edgeai.text import printable

TOKEN: Final = re.compile(r"[!-~]+")
_OWNER_CHARS: Final = 200  # of a name in a token, which nobody has verified
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"


class CredentialError(EdgeAIError):
    """A file of this node cannot be used. The text names the file and never quotes the content."""


class ForeignToken(CredentialError):
    """The token file has a ServiceAccount's token that is for another audience."""


class CredentialLost(EdgeAIError):
    """The credential files are lost. The process ends with code 4, as a restart gets new ones."""


class Presented(NamedTuple):
    """The credential that one dial presents to the GlobalManager."""

    headers: dict[str, str]
    """Headers of the HTTP request."""
    tls: ssl.SSLContext | None
    """None: without TLS."""


class _Pod(msgspec.Struct, frozen=True):
    name: str = ""


class _Binding(msgspec.Struct, frozen=True):
    pod: _Pod | None = None


class _Claims(msgspec.Struct, frozen=True):
    """Claims of a JSON Web Token (RFC 7519, 4.1) of Kubernetes. Nobody has verified them."""

    exp: float | None = None
    sub: str = ""
    aud: str | list[str] | None = None
    """None: the token does not say for whom it is."""
    binding: _Binding | None = msgspec.field(default=None, name="kubernetes.io")

    @property
    def is_foreign(self) -> bool:
        """Whether the GlobalManager would certainly refuse the token."""
        audiences = [self.aud] if isinstance(self.aud, str) else self.aud
        return audiences is not None and AUDIENCE not in audiences

    @property
    def owner(self) -> str:
        """NAMESPACE/SERVICEACCOUNT, and the pod to which the token is bound."""
        account = self.sub.removeprefix(_SERVICE_ACCOUNT).replace(":", "/", 1) or "nobody"
        pod = self.binding.pod if self.binding is not None else None
        text = f"{account} (pod {pod.name})" if pod is not None and pod.name else account
        return printable(text)[:_OWNER_CHARS]


class CredentialProblem(NamedTuple):
    """What is wrong with the files."""

    text: str
    """Names the file."""
    is_expiry: bool
    """The token can be read, but has expired by this node's clock, which may be wrong."""


class Credentials:
    """Args: paths of files of this node; None: not configured."""

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
        self._last: Presented | None = None  # the newest usable content
        self._digests: dict[Path, bytes] = {}  # digest of each file's newest content

    def load(self, *, is_secure: bool) -> Presented:
        """Read the files. Args: is_secure: with TLS. Raises: CredentialError"""
        headers = {}
        if self._token_file is not None:
            headers["Authorization"] = f"Bearer {self._own_token(self._token_file)}"
        self._last = Presented(headers, self.tls() if is_secure else None)
        return self._last

    def _own_token(self, file: Path) -> str:
        """Raises: CredentialError, also for the token of another pod"""
        token = read_token(file)
        claims = _claims(token)
        if claims is not None and claims.is_foreign:
            raise ForeignToken(
                f"token file {file}: it has the token of {claims.owner}, which is not for the "
                f"audience {AUDIENCE}"
            )
        return token

    def newest(self, *, is_secure: bool) -> Presented:
        """Read the files; if they cannot be used, return their last usable content.

        Raises: CredentialError if the files were never usable
        """
        try:
            return self.load(is_secure=is_secure)
        except CredentialError:
            if self._last is None:
                raise
            return self._last

    def tls(self) -> ssl.SSLContext:
        """A TLS context from the files as they are now. Raises: CredentialError"""
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
        """A digest of token, certificate and key; it changes when the content of a file changes.

        A file that cannot be read counts with its previous content.
        """
        sha256 = hashlib.sha256()
        for path in (self._token_file, self.client_certificate, self._client_key):
            if path is None:
                sha256.update(b"\0")
                continue
            with contextlib.suppress(OSError):
                self._digests[path] = hashlib.sha256(path.read_bytes()).digest()
            sha256.update(self._digests.get(path, b""))
        return sha256.digest()

    def problem(self, now: datetime) -> CredentialProblem | None:
        """What is wrong with files that were usable before, or with the token of another pod.

        None: the files are good, or they are not there yet.

        Args: now: UTC
        """
        try:
            token = None if self._token_file is None else self._own_token(self._token_file)
            for path in (self._ca_file, self.client_certificate, self._client_key):
                _check_readable(path)
        except CredentialError as error:
            if self._last is None and not isinstance(error, ForeignToken):
                return None
            return CredentialProblem(str(error), is_expiry=False)
        expiry = None if token is None else _expiry(token)
        if self._last is None or expiry is None or now < expiry:
            return None
        text = f"token file {self._token_file}: its token expired at {times.rfc3339(expiry)}"
        return CredentialProblem(text, is_expiry=True)


def read_token(file: Path) -> str:
    """Raises: CredentialError"""
    try:
        token = file.read_text(encoding="ascii").strip()
    except OSError as error:
        raise CredentialError(f"token file {file}: {error.strerror}") from error
    except UnicodeDecodeError:  # no `from error`: the error quotes the content
        token = ""
    if not TOKEN.fullmatch(token):
        raise CredentialError(f"token file {file}: it is not one word of printable ASCII")
    return token


def _claims(token: str) -> _Claims | None:
    """The claims of a JSON Web Token; None for a token of another form."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(claims, type=_Claims)
    except (ValueError, RecursionError):  # msgspec raises ValueErrors
        return None


def _expiry(token: str) -> datetime | None:
    """When a JSON Web Token expires. None: the token never expires, or has another form."""
    claims = _claims(token)
    try:
        end_s = None if claims is None else claims.exp
        return None if end_s is None else datetime.fromtimestamp(end_s, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _check_readable(path: Path | None) -> None:
    if path is None:
        return
    try:
        path.open("rb").close()
    except OSError as error:
        raise CredentialError(f"file {path}: {error.strerror}") from error


def _no_password() -> str:
    raise ValueError("the key is encrypted; use one without a password")


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
