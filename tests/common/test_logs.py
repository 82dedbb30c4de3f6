"""Logs: one JSON object a line, context bound once, no secret in any of them."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from common import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    logs.configure("tested", stream=stream)
    yield stream
    root.handlers[:], root.level = before
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_bound_context_is_in_every_line(stream: io.StringIO) -> None:
    with logs.bind(node="edge0"):
        logs.get_logger("a").info("session opened", tasks=2)
    logs.get_logger("a").info("later")
    first, second = lines(stream)
    assert (first["event"], first["node"], first["tasks"]) == ("session opened", "edge0", 2)
    assert first["component"] == second["component"] == "tested"
    assert "node" not in second


def test_fields_named_like_secrets_are_masked(stream: io.StringIO) -> None:
    logs.get_logger("a").info("x", token="t0p", Authorization="t0p", root_secret="t0p")
    assert "t0p" not in stream.getvalue()


def test_worker_secret_in_a_url_is_masked(stream: io.StringIO) -> None:
    secret = "0123456789abcdef" * 4
    logs.get_logger("a").info("x", url=f"http://127.0.0.1:9100/w/{secret}/v1/workers/w/status")
    assert secret not in stream.getvalue()
    assert "/v1/workers/w/status" in lines(stream)[0]["url"]


def test_libraries_are_heard_from_warning_up(stream: io.StringIO) -> None:
    logging.getLogger("websockets").debug("> header: password")
    logging.getLogger("websockets").warning("trouble")
    assert [line["event"] for line in lines(stream)] == ["trouble"]
