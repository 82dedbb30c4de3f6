"""What is fuzzed: for each target its inputs, and what must hold for each input.

`check` raises for an input that breaks something; any exception counts.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import quote

import msgspec
from hypothesis import strategies as st
from yarl import URL

from common import wire
from common.session import Session, Timing
from edgeai.errors import ProtocolError
from edgeai.ids import NodeName
from globalmanager.contract import Kind
from globalmanager.edge.sessions.cloud_session import CloudSession, Desired, HelloReceived, Reported
from globalmanager.kinds import KINDS
from globalmanager.rest import views
from globalmanager.rest.server import RestLimits
from localcontroller.link.edge_session import EdgeSession
from localcontroller.workers.messages import (
    InvalidMessage,
    parse_edgeai_message,
    parse_sedna_message,
)
from tests.fuzz.inputs import changed_bytes, seeds, trees
from tests.globalmanager.edge.world import assignment
from tests.globalmanager.rest.cluster import RestSide as RestWorld
from tests.globalmanager.rest.cluster import object_of
from tests.support.world import NOW, patch_of
from tests.support.world import World as JobWorld
from tests.support.world import report as report_of


class Target(msgspec.Struct, frozen=True):
    name: str
    inputs: st.SearchStrategy[bytes]
    check: Callable[[bytes], None]


# ---- frames -------------------------------------------------------------------------------------

TIMING: Final = Timing()


def check_frames(data: bytes) -> None:
    """A message, at both ends and in each state of a session: it is read, or the session ends."""
    cloud = CloudSession(now=0.0, timing=TIMING)
    _feed(cloud, data)
    opened = CloudSession(now=0.0, timing=TIMING)
    hello = wire.encode(wire.Hello([1], "ledger", {}))[0]
    assert any(isinstance(event, HelloReceived) for event in opened.receive(hello, 0.0))
    task = assignment(0)
    desired = {task.key: Desired(task.uid, task.version, wire.pack(task.body))}
    opened.welcome(epoch=1, session="s", desired=desired)
    _feed(opened, data)
    edge = EdgeSession(now=0.0, timing=TIMING, instance="ledger", tasks={}, epoch=0)
    _feed(edge, data)
    welcomed = EdgeSession(now=0.0, timing=TIMING, instance="ledger", tasks={}, epoch=0)
    welcomed.receive(wire.encode(wire.Welcome(1, 1, "s"))[0], 0.0)
    _feed(welcomed, data)


def _feed(session: Session, data: bytes) -> None:
    for event in session.receive(data, 1.0):
        if isinstance(event, Reported):
            _unpack(event.report.body)
    for message in session.data_to_send(1.0):
        assert len(message) <= wire.MAX_FRAME_BYTES
    session.tick(2.0)


def _unpack(body: bytes) -> None:
    with suppress(ProtocolError):
        wire.unpack(body, wire.ReportBody)


# ---- the worker API -----------------------------------------------------------------------------


def check_worker_api(data: bytes) -> None:
    """A body is a message whose report fits into a frame, or is refused with the field."""
    for parse in (parse_edgeai_message, lambda body: parse_sedna_message(body, worker="w")):
        try:
            message = parse(data)
        except InvalidMessage:
            continue
        body = wire.ReportBody(task_info={**message.counts, **message.numbers})
        assert len(wire.pack(body)) <= wire.MAX_FRAME_BYTES


# ---- custom resources ---------------------------------------------------------------------------


def check_cr(data: bytes) -> None:
    """A resource becomes a plan, assignments and folds that JSON can hold, whatever it says."""
    manifest = json.loads(data)
    if not isinstance(manifest, dict):
        return
    for kind in _kinds_of(manifest):
        given = manifest.get("status")
        status = given if isinstance(given, dict) else {}  # as the schema demands
        object_ = {**manifest, "metadata": _metadata(manifest), "status": status}
        world = JobWorld(kind, object_)
        plan = world.plan(NOW)
        world.apply(plan)
        second = world.plan(NOW)
        told = [plan.status, second.status, patch_of(world.kind.fold(world.status), report_of())]
        for value in (*told, *kind.assignments(world.observed()).values()):
            msgspec.json.encode(value)
        for action in (*plan.actions, *second.actions):
            msgspec.json.encode(getattr(action, "object", None))


def _kinds_of(manifest: dict[str, Any]) -> Iterator[Kind]:
    """The kind that it names, or all: an API server may hold anything in any of them."""
    named = [kind for kind in KINDS if kind.definition.name == manifest.get("kind")]
    yield from named or KINDS


def _metadata(manifest: dict[str, Any]) -> dict[str, Any]:
    """What an API server makes sure of."""
    given = manifest.get("metadata")
    rest = given if isinstance(given, dict) else {}
    kept = {key: value for key, value in rest.items() if key in ("annotations", "labels")}
    texts = {
        key: {str(name): str(text) for name, text in value.items()}
        for key, value in kept.items()
        if isinstance(value, dict)
    }
    return {**texts, "name": "fuzzed", "namespace": "default", "uid": "uid-1", "generation": 1}


# ---- REST ---------------------------------------------------------------------------------------

_WAIT_S: Final = 30.0


class Rest:
    """A REST server on loopback, and requests that fill the paths of its own OpenAPI document."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._world: RestWorld
        self._document: dict[str, Any] = {}

    @contextmanager
    def running(self) -> Iterator["Rest"]:
        self._thread.start()
        self._world = self._call(_world())
        served = self._world.running()
        self._call(served.__aenter__())
        try:
            _, self._document = self._call(self._world.get("/openapi.json"))
            yield self
        finally:
            self._call(served.__aexit__(None, None, None))
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def check(self, data: bytes) -> None:
        """Args: data: values of parameters by name, as JSON"""
        values = json.loads(data)
        given = values if isinstance(values, dict) else {}
        for template, operations in self._document["paths"].items():
            self._call(self._ask(template, operations["get"], given))

    async def _ask(self, template: str, operation: dict[str, Any], given: dict[str, Any]) -> None:
        parameters = operation["parameters"]
        texts = {p["name"]: quote(str(given.get(p["name"], "a")), safe="") for p in parameters}
        path = template
        for each in parameters:
            if each["in"] == "path":
                path = path.replace(f"{{{each['name']}}}", texts[each["name"]])
        wanted = [each["name"] for each in parameters if each["in"] == "query"]
        query = "&".join(f"{name}={texts[name]}" for name in wanted if name in given)
        async with self._world.client.get(
            URL(f"{self._world.url}{path}?{query}", encoded=True)
        ) as response:
            body = await response.read()
        if response.status in (400, 404, 414):  # no path of the document, or no URL at all
            return
        answers = operation["responses"]
        assert str(response.status) in answers, f"{path}?{query}: {response.status} {body!r}"
        content = answers[str(response.status)]["content"]
        assert response.content_type in content, f"{path}?{query}: {response.content_type}"
        reference = content[response.content_type]["schema"].get("$ref", "")
        if reference:
            view = getattr(views, reference.rpartition("/")[2])
            msgspec.json.decode(body, type=view)

    def _call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)


async def _world() -> RestWorld:
    """Made within its loop."""
    world = RestWorld(limits=RestLimits(per_address_per_s=1e6))
    world.cluster.objects = [object_of("digits"), object_of("other", group="sedna.io")]
    world.contacts.claim(NodeName("node-1"), ledger="ledger")
    return world


# ---- all ----------------------------------------------------------------------------------------


def _json(target: str) -> st.SearchStrategy[bytes]:
    """JSON of changed trees; a lone surrogate stays an escape."""
    return trees([json.loads(seed) for seed in seeds(target)]).map(
        lambda value: json.dumps(value).encode()
    )


@contextmanager
def targets() -> Iterator[dict[str, Target]]:
    frames = [msgspec.msgpack.decode(seed) for seed in seeds("frames")]
    packed = trees(frames).map(msgspec.msgpack.encode) | changed_bytes(seeds("frames"))
    bodies = _json("worker-api") | changed_bytes(seeds("worker-api"))
    with Rest().running() as rest:
        made = (
            Target("frames", packed, check_frames),
            Target("worker-api", bodies, check_worker_api),
            Target("cr", _json("cr"), check_cr),
            Target("rest", _json("rest"), rest.check),
        )
        yield {target.name: target for target in made}
