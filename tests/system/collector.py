"""A receiver of OTLP over HTTP, as an OpenTelemetry collector has it."""

import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


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
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/traces", self._receive)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = "http://{}:{}".format(*runner.addresses[0][:2])
            yield self
        finally:
            await runner.cleanup()


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
