"""Each refusal of the API becomes the exception that callers distinguish."""

import msgspec
import pytest

from edgeai.errors import Unavailable
from edgeai.kube import errors

CASES = [
    (400, "BadRequest", errors.BadRequest),
    (401, "Unauthorized", errors.Unauthorized),
    (403, "Forbidden", errors.Forbidden),
    (404, "NotFound", errors.NotFound),
    (409, "AlreadyExists", errors.AlreadyExists),
    (409, "Conflict", errors.Conflict),
    (410, "Expired", errors.Expired),
    (422, "Invalid", errors.Invalid),
    (429, "TooManyRequests", errors.TooManyRequests),
    (500, "InternalError", errors.ServerError),
    (504, "Timeout", errors.ServerError),
]


def refusal(code: int, reason: str = "", retry_after: str | None = None) -> errors.ApiError:
    body = msgspec.json.encode({"kind": "Status", "code": code, "reason": reason, "message": "no"})
    return errors.from_answer("create", "pods ns/a", code, body, retry_after)


@pytest.mark.parametrize(("code", "reason", "class_"), CASES)
def test_a_status_becomes_the_class_of_its_code_and_reason(
    code: int, reason: str, class_: type[errors.ApiError]
) -> None:
    assert type(refusal(code, reason)) is class_


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (413, "Request entity too large: limit is 3145728"),
        (500, "etcdserver: request is too large"),
        (
            500,
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max "
            "(2500000 vs. 2097152)",
        ),
    ],
)
def test_an_object_beyond_the_limits_of_the_storage_is_too_large(code: int, message: str) -> None:
    body = msgspec.json.encode({"kind": "Status", "code": code, "message": message})
    error = errors.from_answer("patch", "gadgets ns/a", code, body)
    assert type(error) is errors.TooLarge
    assert not isinstance(error, Unavailable)


@pytest.mark.parametrize("code", [429, 500, 503])
def test_an_error_that_may_pass_is_unavailable(code: int) -> None:
    assert isinstance(refusal(code), Unavailable)


@pytest.mark.parametrize("code", [401, 403, 404, 409, 422])
def test_an_error_that_lasts_is_not_unavailable(code: int) -> None:
    assert not isinstance(refusal(code), Unavailable)


def test_text_names_verb_object_message_and_code() -> None:
    assert str(refusal(403, "Forbidden")) == "create pods ns/a: no (403 Forbidden)"


def test_the_answer_of_a_proxy_becomes_the_error_of_its_code() -> None:
    error = errors.from_answer("get", "pods ns/a", 502, b"<html>Bad Gateway</html>")
    assert isinstance(error, errors.ServerError)
    assert "html" not in str(error)


def test_the_words_of_a_gateway_that_answers_json_are_kept() -> None:
    body = b'{"status": 503, "message": "upstream connect error", "details": {"causes": [null]}}'
    error = errors.from_answer("get", "pods ns/a", 503, body)
    assert "upstream connect error" in str(error)


@pytest.mark.parametrize(
    ("code", "header", "expected_s"),
    [
        (429, "7", 7.0),
        (503, "2.5", 2.5),
        (429, None, 1.0),
        (500, None, 0.0),
        (429, "Wed, 21 Oct 2026 07:28:00 GMT", 1.0),
        (429, "-3", 0.0),
        (429, "1e9", errors.MAX_RETRY_AFTER_S),
        (429, "inf", errors.MAX_RETRY_AFTER_S),
        (429, "nan", errors.MAX_RETRY_AFTER_S),
    ],
)
def test_retry_after_is_read_and_bounded(code: int, header: str | None, expected_s: float) -> None:
    assert refusal(code, retry_after=header).retry_after_s == expected_s


@pytest.mark.parametrize(
    ("details", "about"),
    [
        ({"name": "a", "kind": "pods", "group": "x"}, errors.Details("a", "pods")),
        ({}, errors.Details()),
        (None, None),
    ],
    ids=["an object", "no object", "nothing"],
)
def test_an_error_names_the_object_that_the_server_names(
    details: object, about: errors.Details | None
) -> None:
    body = msgspec.json.encode({"kind": "Status", "code": 404, "details": details})
    assert errors.from_answer("get", "pods ns/a", 404, body).about == about
