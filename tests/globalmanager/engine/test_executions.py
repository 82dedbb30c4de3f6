"""Commands in pods: each wanted one runs once, and is cancelled when nobody wants it any more."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from edgeai.api.resources import PODS, Object, ObjectRef
from edgeai.ids import Uid
from edgeai.kube.client import KubeClient
from edgeai.kube.patches import merged
from globalmanager.contract import (
    Execution,
    ExecutionFailure,
    Observed,
    Plan,
    Result,
    UpdateRule,
    WorkerSettings,
)
from globalmanager.engine.executions import MAX_IN_NAMESPACE, Executions
from globalmanager.engine.metrics import EngineMetrics
from globalmanager.engine.queue import WorkQueue
from globalmanager.ha.fence import Fence
from tests.globalmanager.cluster import run_manager
from tests.globalmanager.engine.stores import Stores
from tests.globalmanager.exec_answers import SUCCESS, exited, hangs, says
from tests.globalmanager.gadgets import GADGET
from tests.globalmanager.objects import GADGETS, make
from tests.globalmanager.scripted_api import Answer, ScriptedApi
from tests.support.kubeconfig import write_kubeconfig
from tests.support.tasks import beside
from tests.support.waiting import async_eventually


def job(name: str = "a", namespace: str = "ns", uid: str = "") -> Observed:
    object_ = make(name, namespace=namespace, uid=uid or f"uid-{namespace}-{name}")
    settings = WorkerSettings()
    return Observed(
        type=GADGETS,
        object=object_,
        children={},
        pods=(),
        references={},
        contacts={},
        settings=settings,
    )


def command(pod: str = "p", *, timeout_s: float = 60.0, says: str = "x") -> Execution:
    return Execution(
        pod=pod,
        uid=Uid(f"uid-{pod}"),
        container="main",
        command=("echo", says),
        timeout_s=timeout_s,
    )


class EngineExecutions:
    """The executions of one engine, against a scripted API that has any pod."""

    def __init__(self, client: KubeClient) -> None:
        self.registry = CollectorRegistry()
        self.queue: WorkQueue = WorkQueue()
        self.gone: set[str] = set()
        self.phase = "Running"
        self.executions = Executions(
            client,
            caches=AnyPod(self),
            queue=self.queue,
            metrics=EngineMetrics(self.registry),
        )

    def pod(self, ref: ObjectRef) -> Object | None:
        assert ref.type == PODS
        if ref.name in self.gone:
            return None
        return make(ref.name, type_=PODS, uid=f"uid-{ref.name}", status={"phase": self.phase})

    def result(self, observed: Observed, key: str = "k") -> Result | None:
        return self.executions.results(observed.ref, observed.uid)[key]

    async def until_ended(self, observed: Observed, key: str = "k") -> Result:
        return await async_eventually("the result", lambda: self.result(observed, key))

    def count(self, result: str) -> float:
        labels = {"kind": "Gadget", "result": result}
        return self.registry.get_sample_value("edgeai_executions_total", labels) or 0.0


class AnyPod(Stores):
    """Has each pod of which the world knows no end."""

    def __init__(self, world: EngineExecutions) -> None:
        super().__init__({GADGETS: GADGET})
        self._world = world

    def pod(self, ref: ObjectRef) -> Object | None:
        return self._world.pod(ref)


@asynccontextmanager
async def running(client: KubeClient) -> AsyncIterator[EngineExecutions]:
    world = EngineExecutions(client)
    async with beside(world.executions.run(), "executions"):
        await asyncio.sleep(0)
        yield world


@pytest.fixture
async def world(scripted_client: KubeClient) -> AsyncIterator[EngineExecutions]:
    async with running(scripted_client) as world:
        yield world


def commands_seen(scripted: ScriptedApi) -> list[str]:
    return [request.query.getall("command")[-1] for request in scripted.seen]


async def test_a_wanted_command_runs_once_and_its_job_is_told(
    scripted: ScriptedApi, world: EngineExecutions
) -> None:
    scripted.others = [says(b"\x01hello", status=exited(3))]
    a = job()
    for _ in range(3):
        world.executions.want(a, {"k": command()})
    assert world.executions.results(a.ref, a.uid) == {"k": None}
    assert await world.until_ended(a) == Result(exit_code=3, output="hello")
    world.executions.want(a, {"k": command()})
    assert await world.queue.get() == a.ref
    assert not world.queue
    assert len(scripted.seen) == 1
    assert world.count("Failed") == 1


async def test_what_is_no_longer_wanted_is_cancelled_and_forgotten(
    scripted: ScriptedApi, world: EngineExecutions
) -> None:
    scripted.others = [hangs()]
    a = job()
    world.executions.want(a, {"k": command()})
    await async_eventually("the command", lambda: scripted.seen)
    world.executions.want(a, {})
    assert world.executions.results(a.ref, a.uid) == {}
    await async_eventually("the end", lambda: world.count("Cancelled") == 1)
    assert not world.queue


@pytest.mark.parametrize("how", ["the job is gone", "another leads"])
async def test_the_commands_of_a_job_end_when(
    scripted: ScriptedApi, world: EngineExecutions, how: str
) -> None:
    scripted.others = [hangs()]
    a = job()
    world.executions.want(a, {"k": command(), "l": command(says="y")})
    await async_eventually("both commands", lambda: len(scripted.seen) == 2)
    if how == "the job is gone":
        world.executions.forget(a.ref)
    else:
        world.executions.stop()
    await async_eventually("the end", lambda: world.count("Cancelled") == 2)
    assert world.executions.results(a.ref, a.uid) == {}


async def test_the_same_key_with_another_command_is_another_execution(
    scripted: ScriptedApi, world: EngineExecutions
) -> None:
    scripted.others = [hangs(), says(status=SUCCESS)]
    a = job()
    world.executions.want(a, {"k": command(says="old")})
    await async_eventually("the command", lambda: scripted.seen)
    world.executions.want(a, {"k": command(says="new")})
    assert await world.until_ended(a) == Result(exit_code=0)
    assert commands_seen(scripted) == ["old", "new"]


async def test_a_job_made_anew_does_not_see_the_results_of_its_namesake(
    scripted: ScriptedApi, world: EngineExecutions
) -> None:
    scripted.others = [says(status=SUCCESS)]
    a = job()
    world.executions.want(a, {"k": command()})
    await world.until_ended(a)
    assert world.executions.results(a.ref, Uid("another")) == {}


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        pytest.param("gone", ExecutionFailure.POD_GONE, id="the pod is gone"),
        pytest.param("another", ExecutionFailure.POD_GONE, id="another pod has its name"),
        pytest.param("ended", ExecutionFailure.NOT_RUNNING, id="the pod has ended"),
        pytest.param("no container", ExecutionFailure.NOT_RUNNING, id="the container does not run"),
        pytest.param("forbidden", ExecutionFailure.FORBIDDEN, id="the right is missing"),
        pytest.param("no program", ExecutionFailure.REFUSED, id="the image lacks the program"),
        pytest.param("hangs", ExecutionFailure.TIMEOUT, id="it does not end"),
        pytest.param("unavailable", ExecutionFailure.TIMEOUT, id="the API never answers"),
    ],
)
async def test_a_fault_has_a_name_and_says_what_is_wrong(
    scripted: ScriptedApi, world: EngineExecutions, given: str, fault: ExecutionFailure
) -> None:
    answers: dict[str, Answer] = {
        "no container": scripted.text('container not found ("main")', 500),
        "forbidden": scripted.failure(403, "Forbidden", 'cannot create resource "pods/exec"'),
        "no program": says(status={"status": "Failure", "message": "echo: not found"}),
        "hangs": hangs(),
        "unavailable": scripted.failure(503, "ServiceUnavailable", "etcd has no leader"),
    }
    scripted.others = [answers.get(given, says(status=SUCCESS))]
    execution = command(timeout_s=1.5 if fault is ExecutionFailure.TIMEOUT else 60)
    if given == "gone":
        world.gone.add("p")
    elif given == "another":
        execution = msgspec.structs.replace(execution, uid=Uid("uid-of-its-predecessor"))
    elif given == "ended":
        world.phase = "Succeeded"
    a = job()
    world.executions.want(a, {"k": execution})
    result = await world.until_ended(a)
    assert result.fault is fault
    assert result.exit_code is None
    assert "p" in result.message
    assert world.count(fault.value) == 1
    assert await world.queue.get() == a.ref
    assert not world.queue


async def test_a_broken_connection_runs_the_command_again(
    scripted: ScriptedApi, world: EngineExecutions
) -> None:
    scripted.others = [says(b"\x01half"), says(b"\x01whole", status=SUCCESS)]
    a = job()
    world.executions.want(a, {"k": command()})
    assert await world.until_ended(a) == Result(exit_code=0, output="whole")


async def test_a_namespace_with_many_slow_commands_delays_no_other(
    scripted: ScriptedApi, world: EngineExecutions
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        is_slow = "/namespaces/slow/" in request.path
        return await (hangs() if is_slow else says(status=SUCCESS))(request)

    scripted.others = [answer]
    slow, quick = job(namespace="slow"), job(namespace="quick")
    world.executions.want(slow, {str(n): command(f"p{n}") for n in range(50)})
    await async_eventually("slow ones", lambda: len(scripted.seen) == MAX_IN_NAMESPACE)
    world.executions.want(quick, {"k": command()})
    assert await world.until_ended(quick) == Result(exit_code=0)
    assert len(scripted.seen) == MAX_IN_NAMESPACE + 1
    running = world.registry.get_sample_value("edgeai_executions_running")
    assert running == MAX_IN_NAMESPACE
    world.executions.want(slow, {})
    await async_eventually("the end of all", lambda: world.count("Cancelled") == 50)
    assert world.registry.get_sample_value("edgeai_executions_running") == 0


async def test_what_a_follower_is_asked_runs_once_it_leads(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.others = [says(status=SUCCESS)]
    fence = Fence()
    a = job()
    async with running(scripted_client.guarded(fence)) as world:
        world.executions.want(a, {"k": command()})
        await async_eventually("the refusal", lambda: world.count("Cancelled") == 1)
        assert scripted.seen == []
        fence.open_until(math.inf)
        world.executions.want(a, {"k": command()})
        assert await world.until_ended(a) == Result(exit_code=0)


# ---- in the engine -------------------------------------------------------------------------------


def plan_of_two_commands(observed: Observed, _now: datetime) -> Plan:
    """The second command waits for the result of the first; the status tells both."""
    (pod,) = observed.pods
    uid = Uid(pod["metadata"]["uid"])
    known = observed.executions

    def execution(text: str) -> Execution:
        name = pod["metadata"]["name"]
        return Execution(pod=name, uid=uid, container="c", command=("echo", text), timeout_s=60)

    wanted = {"first": execution("first")}
    if known.get("first") is not None:
        wanted["second"] = execution("second")
    told = {key: each.output for key, each in known.items() if each is not None}
    return Plan(status={"told": told}, executions=wanted)


async def test_a_plan_starts_commands_and_is_made_again_with_their_results(
    scripted: ScriptedApi, tmp_path: Path
) -> None:
    """Before the first command starts, the status that the plan asked for is written."""
    gadget = make("a", namespace="default", spec={})
    owner = {"apiVersion": GADGETS.api_version, "kind": "Gadget", "name": "a", "uid": "uid-a"}
    metadata = {"ownerReferences": [{**owner, "controller": True}]}
    pod = make("p", namespace="default", type_=PODS, metadata=metadata, status={"phase": "Running"})
    lists = {"gadgets": [gadget], "pods": [pod]}
    order: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/exec"):
            text = request.query.getall("command")[-1]
            order.append(text)
            return await says(b"\x01out of " + text.encode(), status=SUCCESS)(request)
        order.append(request.path.rsplit("/", 1)[-1])
        body = msgspec.json.decode(scripted.bodies[-1]) if scripted.bodies[-1] else {}
        gadget.update(merged(gadget, body))
        version = str(int(gadget["metadata"]["resourceVersion"]) + 1)
        gadget["metadata"] = {**gadget["metadata"], "resourceVersion": version}
        return await scripted.json(gadget)(request)

    async def listing(request: web.Request) -> web.StreamResponse:
        found = lists.get(request.path.split("/")[-1], [])
        return await scripted.listing(*found, version=5)(request)

    scripted.lists, scripted.others = [listing], [answer]
    scripted.watches = [scripted.stream(then="hang")]
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    kind = msgspec.structs.replace(
        GADGET, plan=plan_of_two_commands, owns={PODS: UpdateRule.KEEP}, executes=True
    )
    async with run_manager(path, kinds=[kind]) as manager:
        told = {"first": "out of first", "second": "out of second"}
        await async_eventually(
            "both results in the status", lambda: manager.status("a").get("told") == told
        )
    assert order[:2] == ["status", "first"]
    assert order.count("first") == order.count("second") == 1
