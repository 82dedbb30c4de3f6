"""Console sessions: a sealed cookie with the caller's token of the Kubernetes API.

The cookie holds the token itself, encrypted and authenticated with a key that all replicas share.
So a session needs no memory on the server, works at every replica, and ends with its time or with
the token. Scripts cannot read the cookie, and other sites cannot send forms with it.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from common.clock import SYSTEM_CLOCK, Clock
from edgeai.addresses import is_loopback
from edgeai.newest import NewestKeys
from globalmanager.rest.errors import RequestError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SESSION_S: Final = 8 * 3600.0
CODE_S: Final = 30.0
MAX_CODES: Final = 100
MAX_COOKIE_TOKEN_CHARS: Final = 2900  # a browser keeps at most 4096 bytes of a cookie
_NAME: Final = "edgeai-session"
_NONCE_BYTES: Final = 12


class Session(msgspec.Struct, frozen=True, array_like=True):
    """A login. `until` is a wall clock, because other replicas read it too."""

    id: str
    token: str
    until: float


class Logins:
    """Begins sessions, and reads them from requests."""

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._key = b""
        self._codes = NewestKeys[str, tuple[float, str]](MAX_CODES)  # code -> (end, token)

    def use_key(self, root_key: bytes) -> None:
        """From now on there can be sessions. Args: root_key: the same at every replica"""
        self._key = hmac.digest(root_key, b"sessions of the web console", "sha256")

    def session_of(self, request: web.Request) -> Session | None:
        """The session of the request; None: there is none, or its time is over."""
        session = self._open(request.cookies.get(_cookie_name(request), ""))
        return session if session is not None and self.left_s(session) > 0 else None

    def left_s(self, session: Session | None) -> float:
        """Seconds until the session ends; without a session nothing ends."""
        return float("inf") if session is None else session.until - self._clock.utcnow().timestamp()

    def begin(self, request: web.Request, response: web.Response, token: str) -> None:
        """Let the response carry a session with this token. Raises: RequestError"""
        if len(token) > MAX_COOKIE_TOKEN_CHARS:
            problem = (
                f"the token has {len(token)} characters, and a session at most "
                f"{MAX_COOKIE_TOKEN_CHARS}: use `kubectl create token` for a shorter one"
            )
            raise RequestError(HTTPStatus.BAD_REQUEST, problem)
        session = Session(secrets.token_hex(8), token, self._clock.utcnow().timestamp() + SESSION_S)
        is_secure = is_https(request)
        response.set_cookie(
            _cookie_name(request),
            self._seal(session),
            path="/",
            max_age=int(SESSION_S),
            httponly=True,
            secure=is_secure,
            samesite="Lax",
        )

    def end(self, request: web.Request, response: web.Response) -> None:
        """Let the browser forget its session."""
        # A form of another site comes without the cookie, and must not end the session.
        if (name := _cookie_name(request)) in request.cookies:
            is_secure = is_https(request)
            response.del_cookie(name, path="/", httponly=True, secure=is_secure, samesite="Lax")

    # ---- forms ----

    def form_key(self, session: Session) -> str:
        """What every form of this session must carry. Another site cannot know it.

        Raises: RequestError before the key is known
        """
        return hmac.digest(self._known_key(), b"form " + session.id.encode(), "sha256").hex()

    def check_form(self, session: Session, value: str) -> None:
        """Raises: RequestError"""
        if not hmac.compare_digest(self.form_key(session).encode(), value.encode()):
            problem = "the form belongs to another session: load its page again"
            raise RequestError(HTTPStatus.FORBIDDEN, problem)

    # ---- `edgeai open` ----

    def new_code(self, token: str) -> str:
        """A code that begins a session once, within CODE_S, from this machine alone."""
        code = secrets.token_urlsafe(24)
        self._codes[_digest(code)] = (self._clock.elapsed() + CODE_S, token)
        return code

    def token_of(self, code: str) -> str:
        """The token of a code; "": nobody has made the code, or it is used or too old."""
        end, token = self._codes.pop(_digest(code), (0.0, ""))
        return token if self._clock.elapsed() < end else ""

    # ---- the cookie ----

    def _seal(self, session: Session) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + self._cipher().encrypt(nonce, msgspec.msgpack.encode(session), None)
        return base64.urlsafe_b64encode(sealed).decode()

    def _open(self, text: str) -> Session | None:
        if not text:
            return None
        from cryptography.exceptions import InvalidTag

        try:
            raw = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
            plain = self._cipher().decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], None)
            return msgspec.msgpack.decode(plain, type=Session)
        except (InvalidTag, binascii.Error, msgspec.DecodeError, UnicodeError, ValueError):
            return None

    def _cipher(self) -> "AESGCM":
        """Raises: RequestError before the key is known"""
        # Loaded at the first login: the library takes 10 MiB.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self._known_key())

    def _known_key(self) -> bytes:
        """Raises: RequestError before the key is known"""
        if not self._key:
            problem = "the GlobalManager starts and cannot check logins yet; /readyz says why"
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, problem)
        return self._key


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def is_https(request: web.Request) -> bool:
    """Whether the browser speaks TLS, to this process or to a proxy before it."""
    return "https" in (request.scheme, request.headers.get("X-Forwarded-Proto", ""))


def _cookie_name(request: web.Request) -> str:
    """Behind TLS a name that no other host of the domain can set, to log in somebody else."""
    return f"__Host-{_NAME}" if is_https(request) else _NAME


def is_from_this_machine(request: web.Request) -> bool:
    return is_loopback(request.remote or "") and is_loopback(request.url.host or "")


def check_origin(request: web.Request) -> None:
    """Raises: RequestError when the page of another site has sent the request"""
    origin = request.headers.get("Origin", "")
    site = request.headers.get("Sec-Fetch-Site", "")
    scheme, _, host = origin.partition("://")
    is_safe = scheme == "https" or not is_https(request)  # on the way, anybody can change http
    is_own = host == request.host and is_safe if origin else site in ("", *_OWN_SITES)
    if not is_own:
        problem = f"the form was sent by another site, {origin or site}"
        raise RequestError(HTTPStatus.FORBIDDEN, problem)


_OWN_SITES: Final = ("same-origin", "none")


def local_path(text: str) -> str:
    """`text` if it is a path of this server, else "/"."""
    is_local = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if is_local and text.isprintable() and "\\" not in text else "/"
