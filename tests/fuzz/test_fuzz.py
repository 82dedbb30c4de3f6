"""Whatever strangers write, it is read or refused: seeds first, then inputs made of them.

A test run has a small number of inputs, the same each time; `make fuzz` has FUZZ_TIMES as many,
others each time, and tries the crashes again that it has found before.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import strategies as st
from yarl import URL

from common import wire
from common.session import Session, Timing
from edgeai.errors import ProtocolError
from edgeai.ids import NodeName
from globalmanager.contract import Kind
from globalmanager.edge.sessions.cloud_session import CloudSession, Desired
from globalmanager.kinds import KINDS
from globalmanager.rest import views
from globalmanager.rest.server import RestLimits
from localcontroller.link.edge_session import EdgeSession
from localcontroller.workers.messages import (
    InvalidMessage,
    parse_edgeai_message,
    parse_sedna_message,
)
from tests.fuzz.inputs import changed_bytes, fuzzed, seeds, trees
from tests.globalmanager.edge.world import assignment
from tests.globalmanager.rest.cluster import RestSide, object_of
from tests.support.world import NOW, World, patch_of, report


def changed_json(target: str) -> st.SearchStrategy[bytes]:
    """JSON of changed trees; a lone surrogate stays an escape."""
    return trees([json.loads(seed) for seed in seeds(target)]).map(
        lambda value: json.dumps(value).encode()
    )


@pytest.mark.parametrize("target", ["frames", "worker-api", "cr", "rest"])
def test_there_are_seeds(target: str) -> None:
    assert len(seeds(target)) >= 3


# ---- frames -------------------------------------------------------------------------------------

TIMING: Final = Timing()
FRAMES: Final = [msgspec.msgpack.decode(seed) for seed in seeds("frames")]


@fuzzed(
    "frames",
    trees(FRAMES).map(msgspec.msgpack.encode) | changed_bytes(seeds("frames")),
    inputs=1000,
)
def test_a_message_is_read_or_ends_the_session_at_both_ends_in_each_state(data: bytes) -> None:
    cloud = CloudSession(now=0.0, timing=TIMING)
    feed(cloud, data)
    opened = CloudSession(now=0.0, timing=TIMING)
    hello = wire.encode(wire.Hello([1], "ledger", {}))[0]
    assert any(isinstance(event, wire.Hello) for event in opened.receive(hello, 0.0))
    task = assignment(0)
    desired = {task.key: Desired(task.uid, task.version, wire.pack(task.body))}
    opened.welcome(epoch=1, session="s", desired=desired)
    feed(opened, data)
    edge = EdgeSession(now=0.0, timing=TIMING, instance="ledger", tasks={}, epoch=0)
    feed(edge, data)
    welcomed = EdgeSession(now=0.0, timing=TIMING, instance="ledger", tasks={}, epoch=0)
    welcomed.receive(wire.encode(wire.Welcome(1, 1, "s"))[0], 0.0)
    feed(welcomed, data)


def feed(session: Session, data: bytes) -> None:
    for event in session.receive(data, 1.0):
        if isinstance(event, wire.Report):
            with suppress(ProtocolError):
                wire.unpack(event.body, wire.ReportBody)
    for message in session.data_to_send(1.0):
        assert len(message) <= wire.MAX_FRAME_BYTES
    session.tick(2.0)


# ---- the worker API -----------------------------------------------------------------------------


@fuzzed("worker-api", changed_json("worker-api") | changed_bytes(seeds("worker-api")), inputs=2000)
def test_a_workers_message_has_a_report_that_fits_into_a_frame_or_is_refused(data: bytes) -> None:
    for parse in (parse_edgeai_message, lambda body: parse_sedna_message(body, worker="w")):
        try:
            message = parse(data)
        except InvalidMessage:
            continue
        body = wire.ReportBody(task_info={**message.counts, **message.numbers})
        assert len(wire.pack(body)) <= wire.MAX_FRAME_BYTES


# ---- custom resources ---------------------------------------------------------------------------


@fuzzed("cr", changed_json("cr"), inputs=300)
def test_a_resource_becomes_plans_assignments_and_folds_that_json_can_hold(data: bytes) -> None:
    manifest = json.loads(data)
    if not isinstance(manifest, dict):
        return
    for kind in kinds_of(manifest):
        given = manifest.get("status")
        status = given if isinstance(given, dict) else {}  # as the schema demands
        world = World(kind, {**manifest, "metadata": metadata_of(manifest), "status": status})
        plan = world.plan(NOW)
        world.apply(plan)
        second = world.plan(NOW)
        told = [plan.status, second.status, patch_of(world.kind.fold(world.status), report())]
        for value in (*told, *kind.assignments(world.observed()).values()):
            msgspec.json.encode(value)
        for action in (*plan.actions, *second.actions):
            msgspec.json.encode(getattr(action, "object", None))


def kinds_of(manifest: dict[str, Any]) -> Iterator[Kind]:
    """The kind that it names, or all: an API server may hold anything in any of them."""
    named = [kind for kind in KINDS if kind.definition.name == manifest.get("kind")]
    yield from named or KINDS


def metadata_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """What an API server makes sure of."""
    given = manifest.get("metadata")
    rest = given if isinstance(given, dict) else {}
    texts = {
        key: {str(name): str(text) for name, text in value.items()}
        for key, value in rest.items()
        if key in ("annotations", "labels") and isinstance(value, dict)
    }
    return {**texts, "name": "fuzzed", "namespace": "default", "uid": "uid-1", "generation": 1}


# ---- REST ---------------------------------------------------------------------------------------


@pytest.fixture
async def world() -> AsyncIterator[RestSide]:
    world = RestSide(limits=RestLimits(per_address_per_s=1e6))
    world.cluster.objects = [object_of("digits"), object_of("other", group="sedna.io")]
    world.contacts.claim(NodeName("node-1"), ledger="ledger")
    async with world.running():
        yield world


@fuzzed("rest", changed_json("rest"), inputs=100)
async def test_rest_answers_as_described(world: RestSide, data: bytes) -> None:
    """The paths of the OpenAPI document, with these values of parameters by name."""
    values = json.loads(data)
    given = values if isinstance(values, dict) else {}
    _, document = await world.get("/openapi.json")
    for template, operations in document["paths"].items():
        await check_answer(world, template, operations["get"], given)


async def check_answer(
    world: RestSide, template: str, operation: dict[str, Any], given: dict[str, Any]
) -> None:
    parameters = operation["parameters"]
    texts = {p["name"]: quote(str(given.get(p["name"], "a")), safe="") for p in parameters}
    path = template
    for each in parameters:
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", texts[each["name"]])
    wanted = [each["name"] for each in parameters if each["in"] == "query"]
    query = "&".join(f"{name}={texts[name]}" for name in wanted if name in given)
    url = URL(f"{world.url}{path}?{query}", encoded=True)
    async with world.client.get(url) as response:
        body = await response.read()
    if response.status in (400, 404, 414):  # no path of the document, or no URL at all
        return
    answers = operation["responses"]
    assert str(response.status) in answers, f"{path}?{query}: {response.status} {body!r}"
    content = answers[str(response.status)]["content"]
    assert response.content_type in content, f"{path}?{query}: {response.content_type}"
    reference = content[response.content_type]["schema"].get("$ref", "")
    if reference:
        msgspec.json.decode(body, type=getattr(views, reference.rpartition("/")[2]))
