"""The routes of the REST API as data: the server registers them, openapi describes them."""

import http
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.Response]]

JSON: Final = "application/json"
TEXT: Final = "text/plain"


class Parameter(msgspec.Struct, frozen=True):
    """`where`: "path" or "query". Parameters in the path are required."""

    name: str
    where: str
    meaning: str


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """GET `path`.

    `answer` is the type of the body of a 200; str: plain text. `failures` are the other statuses
    that are possible, each with an ErrorView, or with the type `failure` where that is given.
    """

    path: str
    summary: str
    handler: Handler
    answer: type
    parameters: tuple[Parameter, ...] = ()
    failures: tuple[http.HTTPStatus, ...] = ()
    failure: type | None = None
