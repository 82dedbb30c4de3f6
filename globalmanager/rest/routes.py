"""The routes of the REST API as data. The server registers the routes; openapi describes them."""

import http
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.Response]]

JSON: Final = "application/json"
TEXT: Final = "text/plain"


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a route. `where`: "path" or "query"; parameters in the path are required."""

    name: str
    where: str
    meaning: str


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One route for requests GET `path`.

    `answer` is the type of a successful answer; str means plain text. `failures` are the possible
    statuses of other answers. Their type is `failure`, or ErrorView when `failure` is None.
    """

    path: str
    summary: str
    handler: Handler
    answer: type
    parameters: tuple[Parameter, ...] = ()
    failures: tuple[http.HTTPStatus, ...] = ()
    failure: type | None = None
