"""A receiver of OTLP over HTTP, as an OpenTelemetry collector has it."""

import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.http_server import serving


class Span(NamedTuple):
    service: str
    name: str
    trace: bytes
    id: bytes
    parent: bytes
    start_ns: int
    end_ns: int
    attributes: dict[str, str | int]


class Collector:
    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.received = b""
        self.url = ""

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    async def _receive(self, request: web.Request) -> web.Response:
        assert (request.method, request.path) == ("POST", "/v1/traces")
        body = await request.read()
        self.received += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [_span(names["service.name"], span) for span in scope.spans]
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Collector"]:
        async with serving(self._receive) as self.url:
            yield self


def _span(service: str, span: object) -> Span:
    get = span.__getattribute__
    attributes: dict[str, str | int] = {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in get("attributes")
    }
    return Span(
        service,
        get("name"),
        get("trace_id"),
        get("span_id"),
        get("parent_span_id"),
        get("start_time_unix_nano"),
        get("end_time_unix_nano"),
        attributes,
    )
