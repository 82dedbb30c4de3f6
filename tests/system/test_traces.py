"""The way of a job is one trace of both managers, in a real collector's protocol."""

import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.http_server import serving
from tests.support.waiting import async_eventually
from tests.system.manager_world import NODE, TOKEN, ManagerAndNode, running_node, world

__all__ = ["world"]  # a fixture


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
    """A receiver of OTLP over HTTP, as an OpenTelemetry collector has it."""

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


STEPS: Final = (
    ("globalmanager", "observe and assign"),
    ("globalmanager", "send"),
    ("localcontroller", "store"),
    ("localcontroller", "run until the first report"),
)
FURTHER: Final = (
    ("globalmanager", "plan and apply"),
    ("globalmanager", "wait for the node"),
    ("globalmanager", "write the status"),
    ("globalmanager", "task"),
)
TASK: Final = "jointinferenceservices.edgeai.io/default/digits"
CLOCKS_NS: Final = 1_000_000  # a span's times are read one after the other
ATTRIBUTES: Final = frozenset(
    f"edgeai.{each}" for each in ("task", "uid", "version", "node", "worker")
)


@pytest.fixture
async def traced(
    world: ManagerAndNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Collector:
    """What a collector has got of a job, from its creation to its first report, and of a second job
    that has not reported.
    """
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")  # milliseconds until spans are sent
    async with Collector().running() as collector:
        flags = ("--traces-endpoint", collector.url)
        async with (
            world.manager(lease_s=3, flags=flags),
            running_node(tmp_path, world.line.port, flags=flags) as node,
        ):
            await world.add_job("digits")
            await world.report(node, "digits")
            await async_eventually("all steps", lambda: has_all(collector))
            await world.report(node, "digits")
            await world.add_job("letters")
            await async_eventually("the next job", lambda: len(collector.named("store")) == 2)
            secret = await world.secret("digits")
            assert secret.encode() not in collector.received
    return collector


def has_all(collector: Collector) -> bool:
    missing = {*STEPS, *FURTHER} - {(span.service, span.name) for span in collector.spans}
    assert not missing, f"no {missing}"
    return True


async def test_the_way_of_a_job_is_one_trace(traced: Collector, world: ManagerAndNode) -> None:
    job = world.jobs["digits"]
    way = [span for span in traced.spans if span.attributes["edgeai.task"] == TASK]
    assert {span.trace for span in way} == {way[0].trace}
    for span in way:
        assert span.attributes.keys() <= ATTRIBUTES
        assert span.attributes["edgeai.uid"] == job["metadata"]["uid"]
        assert span.attributes["edgeai.version"] == job["metadata"]["generation"]
        assert span.attributes.get("edgeai.node", NODE) == NODE
    (whole,) = traced.named("task")
    assert whole.parent == b""
    assert {span.parent for span in way if span is not whole} == {whole.id}
    assert len({span.id for span in traced.spans}) == len(traced.spans)
    others = [span for span in traced.spans if span not in way]
    assert {span.trace for span in others}.isdisjoint({whole.trace})
    models = {span.name for span in others if "models." in str(span.attributes["edgeai.task"])}
    assert models <= {"plan and apply"}, "no node holds a Model"
    assert TOKEN.encode() not in traced.received


async def test_the_steps_follow_each_other(traced: Collector) -> None:
    spans: list[Span] = []
    for service, name in STEPS:
        (span,) = (each for each in traced.named(name) if each.attributes["edgeai.task"] == TASK)
        assert span.service == service
        assert span.start_ns <= span.end_ns
        spans.append(span)
    for before, after in itertools.pairwise(spans):
        assert before.start_ns <= after.start_ns + CLOCKS_NS
    (whole,) = traced.named("task")
    (written,) = traced.named("write the status")
    assert whole.start_ns <= spans[0].start_ns + CLOCKS_NS
    assert written.end_ns <= whole.end_ns + CLOCKS_NS
    assert whole.end_ns <= spans[-1].end_ns + CLOCKS_NS
