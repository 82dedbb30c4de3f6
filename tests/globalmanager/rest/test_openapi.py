"""The OpenAPI document and the server agree, in both directions."""

import http
import re
from typing import Any

import msgspec
import pytest
from aiohttp import web

from globalmanager.rest import views
from globalmanager.rest.access import Caller, OpenAccess
from globalmanager.rest.errors import RequestError
from tests.globalmanager.rest.cluster import JI, RestSide, object_of

EXAMPLE = {"namespace": "default", "plural": JI, "name": "digits"}


async def document(world: RestSide) -> Any:
    status, answer = await world.get("/openapi.json")
    assert status == 200
    return answer


async def test_each_route_is_described_and_nothing_else(world: RestSide) -> None:
    paths = (await document(world))["paths"]
    assert paths.keys() == {route.path for route in world.api.routes}
    served = {resource.canonical for resource in world.server._runner.app.router.resources()}
    assert paths.keys() == served - {
        re.sub(r":[^{}]+\}", "}", route.path) for route in world.console.routes
    }


async def test_each_described_path_answers_as_described(world: RestSide) -> None:
    world.cluster.objects = [object_of("digits")]
    described = await document(world)
    for path, operations in described["paths"].items():
        async with world.client.get(world.url + path.format(**EXAMPLE)) as response:
            assert response.status == 200, path
            content = operations["get"]["responses"]["200"]["content"]
            assert response.content_type in content, path
            schema = content[response.content_type]["schema"]
            if "$ref" in schema:
                view = getattr(views, schema["$ref"].rpartition("/")[2])
                msgspec.json.decode(await response.read(), type=view)


async def test_each_failure_is_described(world: RestSide) -> None:
    described = (await document(world))["paths"]
    for path, operations in described.items():
        async with world.client.get(world.url + path.format(**EXAMPLE)) as response:
            assert str(response.status) in operations["get"]["responses"], path
    world.populated = False
    for path, operations in described.items():
        async with world.client.get(world.url + path.format(**EXAMPLE)) as response:
            assert str(response.status) in operations["get"]["responses"], path


class Refusal(OpenAccess):
    """Refuses everybody with one status."""

    def __init__(self, status: http.HTTPStatus) -> None:
        self._status = status

    async def identify(self, _request: web.Request, _token: str | None = None) -> Caller:
        raise RequestError(self._status, "refused")


@pytest.mark.parametrize("status", [401, 403, 429, 503])
async def test_each_refusal_of_a_caller_is_described(status: int) -> None:
    refused = set()
    async with RestSide(Refusal(http.HTTPStatus(status))).running() as world:
        for path, operations in (await document(world))["paths"].items():
            async with world.client.get(world.url + path.format(**EXAMPLE)) as response:
                if response.status == status:
                    refused.add(path)
                    assert str(status) in operations["get"]["responses"], path
    assert len(refused) > 3


async def test_every_parameter_of_a_path_is_declared(world: RestSide) -> None:
    for path, operations in (await document(world))["paths"].items():
        declared = {p["name"] for p in operations["get"]["parameters"] if p["in"] == "path"}
        assert declared == {part[1:-1] for part in path.split("/") if part.startswith("{")}


async def test_every_reference_resolves(world: RestSide) -> None:
    described = await document(world)
    assert described["openapi"] == "3.1.0"
    assert described["info"]["version"] == "1.2.3"
    references = list(references_in(described))
    assert references
    for reference in references:
        at: Any = described
        for step in reference.removeprefix("#/").split("/"):
            at = at[step]


def references_in(node: Any) -> Any:
    if isinstance(node, dict):
        if "$ref" in node:
            yield node["$ref"]
        for value in node.values():
            yield from references_in(value)
    elif isinstance(node, list):
        for value in node:
            yield from references_in(value)


@pytest.mark.parametrize("word", ["secret", "grant", "hash", "token"])
def test_no_answer_has_a_place_for_secrets(word: str) -> None:
    for view in views.View.__subclasses__():
        assert not [name for name in view.__struct_fields__ if word in name.lower()]
