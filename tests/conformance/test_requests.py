"""What a request may look like, and the Status objects that refuse it."""

from typing import Any

import pytest

from tests.conformance.objects import configmap
from tests.conformance.space import Space
from tests.support.client import JSON, Client

REFUSED: dict[str, tuple[str, str, Any, str, tuple[int, str]]] = {
    "no such resource": ("GET", "/api/v1/gadgets", None, JSON, (404, "NotFound")),
    "no such group": ("GET", "/apis/x.test/v1/gadgets", None, JSON, (404, "NotFound")),
    "no such subresource": ("GET", "{one}/status", None, JSON, (404, "NotFound")),
    "missing object": ("GET", "{one}", None, JSON, (404, "NotFound")),
    "update of a collection": ("PUT", "{all}", {}, JSON, (405, "MethodNotAllowed")),
    "creation under a name": ("POST", "{one}", configmap(), JSON, (405, "MethodNotAllowed")),
    "no JSON": ("POST", "{all}", b"{", JSON, (400, "BadRequest")),
    "NaN": ("POST", "{all}", b'{"a": NaN}', JSON, (400, "BadRequest")),
    "no object": ("POST", "{all}", b"[]", JSON, (400, "BadRequest")),
    "media type": ("POST", "{all}", b"x", "image/png", (415, "UnsupportedMediaType")),
    "dry run": ("POST", "{all}?dryRun=Some", configmap(), JSON, (422, "Invalid")),
    "too large": (
        "POST",
        "{all}",
        b'{"metadata": {"name": "one"}, "data": {"a": "' + b"x" * (4 << 20) + b'"}}',
        JSON,
        (413, "RequestEntityTooLarge"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_is_refused(space: Space, case: str) -> None:
    method, template, body, content_type, refusal = REFUSED[case]
    path = template.format(all=space.path("configmaps"), one=space.path("configmaps", "one"))
    answer = space.client(method, path, body, content_type=content_type)
    if answer.status == 404 and not isinstance(answer.body, dict):
        assert answer.body.startswith("404 page not found")  # nobody serves the group at all
        return
    assert answer.refusal == refusal
    assert (answer.body["status"], answer.body["code"]) == ("Failure", refusal[0])
    assert answer.body["apiVersion"] == "v1"


def test_who_does_not_say_who_he_is_may_not(space: Space) -> None:
    nobody = Client(space.client.url, token="wrong", context=space.client.context)
    assert nobody("GET", space.path("configmaps")).refusal == (401, "Unauthorized")
