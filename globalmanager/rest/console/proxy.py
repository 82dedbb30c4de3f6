"""The login by an authenticating proxy before the console: a header with the caller's token.

A TokenReview says whose token it is, as for every other token. So whoever sends the header, also a
browser by itself, gets what the token may do and no more. A header with the name of a user would
have to be believed, so none is.

What a request with the header does is done as the header says. A session in its cookie does not
count: another person may have left the session in this browser.
"""

import hashlib
import re
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from edgeai.errors import SettingsError
from globalmanager.rest.access import Access, Caller
from globalmanager.rest.console.login import Session
from globalmanager.rest.errors import RequestError

_SETTING: Final = "setting consoleTokenHeader"
_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_NO_TOKEN: Final = re.compile(r"user|email|group|cookie|host", re.IGNORECASE)


class ProxyLogin:
    """Args: header: that has the token; "" for no proxy. Raises: SettingsError for a wrong name"""

    def __init__(self, header: str = "") -> None:
        if header and not _NAME.fullmatch(header):
            raise SettingsError(_SETTING, f"{header[:80]!r} is not the name of a header")
        if _NO_TOKEN.search(header):
            problem = (
                f"{header!r} carries no token, and a name that a header carries is never trusted; "
                "write X-Forwarded-Access-Token, or what your proxy calls it"
            )
            raise SettingsError(_SETTING, problem)
        self._header = header

    def token_of(self, request: web.Request) -> str:
        """The token in the header; "" where there is none. Raises: RequestError for two headers"""
        values = request.headers.getall(self._header, []) if self._header else []
        if len(values) > 1:
            problem = f"the header {self._header} is there {len(values)} times"
            remedy = "let the proxy remove that of the browser"
            raise RequestError(HTTPStatus.BAD_REQUEST, f"{problem}: {remedy}")
        value = "".join(values).strip()
        scheme, _, token = value.partition(" ")
        return token.strip() if scheme.lower() == "bearer" else value

    async def visitor(
        self, reviews: Access, request: web.Request, token: str
    ) -> tuple[Caller, Session]:
        """Whose token it is. Raises: RequestError"""
        try:
            caller = await reviews.identify(request, token)
        except RequestError as error:
            if error.status != HTTPStatus.UNAUTHORIZED:
                raise
            # Not the page of the login: a token that is pasted there would not count.
            problem = f"the Kubernetes API does not accept the token in {self._header}"
            remedy = "log in at the proxy again"
            raise RequestError(HTTPStatus.FORBIDDEN, f"{problem}: {remedy}") from None
        # The proxy renews the token meanwhile, and the forms of an open page stay good.
        identity = msgspec.json.encode([caller.username, caller.uid])
        id_ = f"of the proxy {hashlib.sha256(identity).hexdigest()}"
        return caller, Session(id_, token, float("inf"))
