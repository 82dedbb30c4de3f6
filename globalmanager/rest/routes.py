"""The routes of the REST API as data. The server registers the routes. openapi describes them."""

import http
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

JSON: Final = "application/json"
TEXT: Final = "text/plain"


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a route. `where` is "path" or "query". Parameters in the path are required."""

    name: str
    where: str
    meaning: str


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One route for requests to `path`. Only a route for POST takes a body, which is a form.

    `answer` is the type of a successful answer. The type str means plain text. `failures` are the
    possible HTTP statuses of other answers. These answers have the type `failure`, or ErrorView
    when `failure` is None.
    """

    path: str
    method: str = "GET"
    summary: str
    handler: Handler
    answer: type
    parameters: tuple[Parameter, ...] = ()
    failures: tuple[http.HTTPStatus, ...] = ()
    failure: type | None = None
