"""The routes of the REST API as data, for the server and for its OpenAPI 3.1 document."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from operator import attrgetter
from typing import Any, Final

import msgspec
from aiohttp import web

from globalmanager.rest.views import ErrorView

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

JSON: Final = "application/json"
TEXT: Final = "text/plain"


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a route. `where` is "path" or "query". Parameters in the path are required."""

    name: str
    where: str
    meaning: str


class Route(msgspec.Struct, frozen=True):
    """One route to `path`, described by the docstring of `handler`. POST alone takes a form.

    `answer` is the type of a successful answer. The type str means plain text. `failures` are the
    possible HTTP statuses of other answers, which have the type `failure` or ErrorView
    """

    path: str
    handler: Handler
    answer: type
    parameters: tuple[Parameter, ...] = ()
    failures: tuple[HTTPStatus, ...] = ()
    failure: type | None = None
    method: str = "GET"


_REF: Final = "#/components/schemas/{name}"

Document = dict[str, Any]


def document(routes: Sequence[Route], *, version: str) -> Document:
    types = {type_ for route in routes for type_ in answers_of(route)} - {str, dict}
    _, schemas = msgspec.json.schema_components(
        sorted(types, key=attrgetter("__name__")), ref_template=_REF
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "edgeai GlobalManager",
            "version": version,
            "description": "Read-only view of nodes and job resources, served from caches.",
        },
        "paths": {route.path: {"get": _operation(route)} for route in routes},
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def answers_of(route: Route) -> tuple[type, type]:
    """The types of a route's answers on success and on failure."""
    return route.answer, route.failure or ErrorView


def _operation(route: Route) -> Document:
    success, failure = answers_of(route)
    answers = {"200": _answer("OK", success)}
    for status in route.failures:
        answers[str(status.value)] = _answer(status.phrase, failure)
    return {
        "summary": inspect.getdoc(route.handler),
        "operationId": route.handler.__name__,
        "parameters": [
            {
                "name": parameter.name,
                "in": parameter.where,
                "required": parameter.where == "path",
                "description": parameter.meaning,
                "schema": {"type": "string"},
            }
            for parameter in route.parameters
        ],
        "responses": answers,
    }


def _answer(phrase: str, type_: type) -> Document:
    if type_ is str:
        return {"description": phrase, "content": {TEXT: {"schema": {"type": "string"}}}}
    schema: Document = {"type": "object"}
    if type_ is not dict:
        schema = {"$ref": _REF.format(name=type_.__name__)}
    return {"description": phrase, "content": {JSON: {"schema": schema}}}
