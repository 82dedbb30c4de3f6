"""Each alert's expression is true of the metrics of real managers in the state that it is about.

A real Prometheus scrapes the processes. How long a state must last until the alert fires is for
`tests/monitoring/test_alerts.py`.
"""

import asyncio
import contextlib
import functools
import resource
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from edgeai.api.resources import DEPLOYMENTS, NODES, PODS, Object, ResourceType, ref_of
from edgeai.kube.errors import Malformed
from globalmanager.kinds.training.edge_placement import EDGE_LABEL
from tests.cluster.training import tf_job
from tests.globalmanager.cluster import TOKEN as API_TOKEN
from tests.localcontroller.test_process import Controller
from tests.monitoring.rules import alerts
from tests.monitoring.scraper import Prometheus, scraping
from tests.monitoring.test_dashboard import EXPRESSIONS
from tests.monitoring.test_metrics import METRICS, PAGE
from tests.relay.world import authorization
from tests.support.certificates import Authority
from tests.support.http_server import headers_of, passing_on, serving
from tests.support.kubeconfig import write_kubeconfig
from tests.support.waiting import async_eventually
from tests.system.manager_world import NODE, ManagerAndNode, Place, items_of, running_node, world
from tests.system.next_release import THIS, Release

__all__ = ["world"]  # a fixture

Answers = Callable[[str, str], int]
"""Method and path -> the HTTP status of an error; 0: the API answers."""


class FaultyApi:
    """A proxy before the Kubernetes API that answers some requests itself, with an error."""

    def __init__(self, target: str, answers: Answers) -> None:
        self._target, self._answers = target, answers
        self.url = ""
        self._session: aiohttp.ClientSession

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["FaultyApi"]:
        timeout = aiohttp.ClientTimeout(total=None)
        async with (
            aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as self._session,
            serving(self._handle) as self.url,
        ):
            yield self

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if status := self._answers(request.method, request.path):
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": status}
            return web.json_response(body, status=status)
        async with passing_on(request, self._session, self._target) as answer:
            response = web.StreamResponse(status=answer.status, headers=headers_of(answer))
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            return response


T = TypeVar("T", bound=Callable[..., Any])
pytestmark = pytest.mark.timeout(300)  # some states last for half a minute

LATE_S: Final = 90.0  # some alerts are about what lasts for half a minute
LEASE_S: Final = 3
DATASETS: Final = ResourceType("edgeai.io", "v1alpha1", "datasets", "Dataset")
TF_JOBS: Final = ResourceType("kubeflow.org", "v1", "tfjobs", "TFJob")
TASKS_OF_A_NAMESPACE: Final = 1000
FULL_BYTES: Final = 4096  # no file grows beyond, as on a full disk
BALLOON: Final = "tests.monitoring.balloon"
PROVOKED: Final[dict[str, tuple[str, ...]]] = {}  # test -> the alerts that it sees


def provokes(*names: str) -> Callable[[T], T]:
    """Name the alerts that a test sees."""

    def note(test: T) -> T:
        PROVOKED[test.__name__] = names
        return test

    return note


def test_every_alert_is_provoked() -> None:
    provoked = {name for names in PROVOKED.values() for name in names}
    assert provoked == alerts().keys()


async def until_true(prometheus: Prometheus, *names: str) -> None:
    """Wait until the expression of each of these alerts is true."""
    for name in names:
        ask = functools.partial(prometheus.ask, alerts()[name]["expr"])
        await async_eventually(f"the state of {name}", ask, timeout_s=LATE_S)


@contextlib.asynccontextmanager
async def node(
    directory: Path, port: int, *flags: str, release: Release = THIS
) -> AsyncIterator[tuple[Controller, int]]:
    """A LocalController that finds its GlobalManager at `port`. Gives it and its metrics' port."""
    async with running_node(directory, port, release=release, flags=flags) as controller:
        yield controller, await controller.until_listening("status")


@contextlib.asynccontextmanager
async def both(world: ManagerAndNode, directory: Path, *flags: str) -> AsyncIterator[
    tuple[Controller, Prometheus]
]:  # fmt: skip
    """A manager and a node, scraped; a job whose worker has reported."""
    async with world.manager(lease_s=LEASE_S), node(directory, world.line.port, *flags) as (lc, at):
        targets = {"east": world.east.http_port, NODE: at}
        async with scraping(directory, targets) as prometheus:
            await world.add_job("digits")
            await world.report(lc, "digits")
            await prometheus.scrapes(4)
            yield lc, prometheus


@contextlib.asynccontextmanager
async def before_api(
    world: ManagerAndNode, directory: Path, answers: Answers
) -> AsyncIterator[Prometheus]:
    """A manager that speaks to the API through a proxy, and has a job."""
    async with FaultyApi(world.cluster.url, answers).running() as api:
        kubeconfig = write_kubeconfig(directory / "faulty", api.url, API_TOKEN)
        place = Place.of("east", kubeconfig)
        async with (
            world.manager(at=place, lease_s=LEASE_S),
            scraping(directory, {"east": place.http_port}) as prometheus,
        ):
            await prometheus.scrapes(2)
            await world.add_job("digits")
            yield prometheus


def on_creation_of(plural: str, status: int) -> Answers:
    """The API answers each creation of these with an error."""
    return lambda method, path: status if method == "POST" and path.endswith(plural) else 0


async def ask_relay(port: int, secret: str) -> None:
    """As the worker of the job, ask the proxy of the node for the job's Service."""
    host = "digits-cloud.default:5000"
    who = authorization("digits-edge", secret)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n{who}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


async def test_managers_that_are_well(world: ManagerAndNode, tmp_path: Path) -> None:
    """No alert is true, each panel of the dashboard has an answer, and the page has all metrics."""
    async with both(world, tmp_path) as (lc, prometheus):
        for name, rule in alerts().items():
            found = await prometheus.ask(rule["expr"])
            assert not found, f"{name} would fire: {found}"
        for expression in EXPRESSIONS:
            await prometheus.ask(expression)
        _, of_node = await lc.probe("/metrics")
        check_page(of_node)
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{world.east.http_port}/metrics") as answer,
        ):
            check_page(await answer.text())


def check_page(text: str) -> None:
    """Every metric of the text is on the page on metrics, and has no more values than it says."""
    documented = {each.values[1].name for each in METRICS}  # type: ignore[union-attr]
    values: dict[tuple[str, str], set[str]] = {}
    for family in text_string_to_metric_families(text):
        end = "_total" if family.type == "counter" else ""
        if family.name.endswith("_created"):
            continue
        assert family.name + end in documented
        for sample in family.samples:
            for label, value in sample.labels.items():
                values.setdefault((family.name, label), set()).add(value)
    assert values
    for (name, label), found in values.items():
        if label != "le":
            assert len(found) <= PAGE["LABELS"][label].values, f"{name}: {found}"


@provokes(
    "EdgeAINobodyReconciles", "EdgeAIStaleCache", "EdgeAIReportsWait", "EdgeAIAPIErrors"
)  # fmt: skip
async def test_an_api_server_that_is_away(world: ManagerAndNode, tmp_path: Path) -> None:
    async with both(world, tmp_path) as (lc, prometheus):
        secret = await world.secret("digits")
        await world.cluster.stop()
        assert await lc.post_message(2, worker="digits-edge", secret=secret) == 200
        await until_true(prometheus, *PROVOKED["test_an_api_server_that_is_away"])


@provokes("EdgeAIForbidden")
async def test_an_api_server_that_forbids(world: ManagerAndNode, tmp_path: Path) -> None:
    async with before_api(world, tmp_path, on_creation_of("deployments", 403)) as prometheus:
        await until_true(prometheus, "EdgeAIForbidden")


@provokes("EdgeAIReconcileFails")
async def test_an_api_server_that_fails(world: ManagerAndNode, tmp_path: Path) -> None:
    async with before_api(world, tmp_path, on_creation_of("deployments", 500)) as prometheus:
        await until_true(prometheus, "EdgeAIReconcileFails")


@provokes("EdgeAIAPIThrottles")
async def test_an_api_server_that_wants_fewer_requests(
    world: ManagerAndNode, tmp_path: Path
) -> None:
    async with before_api(world, tmp_path, on_creation_of("deployments", 429)) as prometheus:
        await until_true(prometheus, "EdgeAIAPIThrottles")


@provokes("EdgeAIQueueWaits")
async def test_more_jobs_than_the_rate_of_requests_lets_through(
    world: ManagerAndNode, tmp_path: Path
) -> None:
    flags = ("--qps", "20", "--burst", "20", "--workers", "1")
    async with (
        world.manager(lease_s=LEASE_S, flags=flags),
        scraping(tmp_path, {"east": world.east.http_port}) as prometheus,
    ):
        for number in range(300):
            await world.add_job(f"digits-{number}")
        await until_true(prometheus, "EdgeAIQueueWaits")


@provokes("EdgeAIJobsStalled")
async def test_a_job_whose_worker_crashes(world: ManagerAndNode, tmp_path: Path) -> None:
    async with both(world, tmp_path) as (_lc, prometheus):

        async def deployments() -> list[Object]:
            return await items_of(world.client, DEPLOYMENTS)

        (deployment, *_) = await async_eventually("a Deployment", deployments)
        owner = {key: deployment["metadata"][key] for key in ("name", "uid")}
        owner |= {"apiVersion": "apps/v1", "kind": "Deployment", "controller": True}
        template = deployment["spec"]["template"]
        labels = template["metadata"]["labels"]
        metadata = {"name": "crashes", "namespace": "default", "labels": labels}
        pod = {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": template["spec"]}
        made = await world.client.create(PODS, pod)
        crash = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s"}}
        last = {"terminated": {"exitCode": 1, "reason": "Error"}}
        entry = {"name": "main", "restartCount": 3, "state": crash, "lastState": last}
        status = {"phase": "Running", "containerStatuses": [entry]}
        await world.client.merge_patch(ref_of(PODS, made), {"status": status}, subresource="status")
        await until_true(prometheus, "EdgeAIJobsStalled")


@provokes("EdgeAIObjectsSetAside")
async def test_a_job_that_is_too_deep(world: ManagerAndNode, tmp_path: Path) -> None:
    deep: Any = {}
    for _ in range(120):
        deep = {"next": deep}
    async with both(world, tmp_path) as (_lc, prometheus):
        with pytest.raises(Malformed):  # our own client cannot read it either
            await world.client.create(NODES, {"metadata": {"name": "deep"}, "status": deep})
        await until_true(prometheus, "EdgeAIObjectsSetAside")


@provokes("EdgeAINodesOutOfContact")
async def test_a_node_that_is_away(world: ManagerAndNode, tmp_path: Path) -> None:
    async with both(world, tmp_path) as (lc, prometheus):
        lc.process.kill()
        await until_true(prometheus, "EdgeAINodesOutOfContact")


async def test_a_cloud_node_with_a_pod_of_a_training_job_is_not_lost(world: ManagerAndNode) -> None:
    for name, labels in (("cloud", {}), ("site", {EDGE_LABEL: ""})):
        await world.client.create(NODES, {"metadata": {"name": name, "labels": labels}})
    containers = [{"name": "tensorflow", "image": "any"}]
    replicas = {
        role: {"template": {"spec": {"containers": containers, "nodeName": node}}}
        for role, node in (("Chief", "cloud"), ("Worker", "site"))
    }
    async with world.manager(lease_s=LEASE_S), aiohttp.ClientSession() as session:
        address = f"http://127.0.0.1:{world.east.http_port}"
        job = {**tf_job("default", "v1"), "spec": {"tfReplicaSpecs": replicas}}
        await world.client.create(TF_JOBS, job)

        async def has_tasks() -> bool:
            async with session.get(f"{address}/api/v1/nodes") as answer:
                nodes = (await answer.json())["items"]
            tasks = {each["name"]: each["tasksDesired"] for each in nodes}
            return bool(tasks["cloud"] and tasks["site"])

        await async_eventually("a task for each of the two nodes", has_tasks)
        async with session.get(f"{address}/metrics") as answer:
            assert 'edgeai_edge_nodes{contact="lost"} 1.0' in (await answer.text()).splitlines()


@provokes("EdgeAISessionsChurn")
async def test_a_line_that_breaks_again_and_again(world: ManagerAndNode, tmp_path: Path) -> None:
    async with both(world, tmp_path) as (_lc, prometheus):

        async def is_churning() -> bool:
            world.line.reset()
            await asyncio.sleep(0.3)
            return bool(await prometheus.ask(alerts()["EdgeAISessionsChurn"]["expr"]))

        await async_eventually("churn", is_churning)


@provokes("EdgeAITasksLeftOut", "EdgeAIAssignmentsRefused", "EdgeAIEdgeLedgerFillsUp")
async def test_more_tasks_than_a_node_can_have(world: ManagerAndNode, tmp_path: Path) -> None:
    async with both(world, tmp_path, "--ledger-max-bytes", str(1024 * 1024)) as (_lc, prometheus):
        for number in range(TASKS_OF_A_NAMESPACE + 1):
            spec = {"url": "/data/" + "x" * 900, "format": "csv", "nodeName": NODE}
            body = {"metadata": {"name": f"d{number}", "namespace": "default"}, "spec": spec}
            kind = {"apiVersion": DATASETS.api_version, "kind": DATASETS.kind}
            await world.client.create(DATASETS, {**kind, **body})
        await until_true(prometheus, *PROVOKED["test_more_tasks_than_a_node_can_have"])


@provokes("EdgeAIAssignmentsWait", "EdgeAIEdgeLedgerRefuses")
async def test_a_node_whose_disk_is_full(world: ManagerAndNode, tmp_path: Path) -> None:
    async with both(world, tmp_path) as (lc, prometheus):
        pid, (_soft, hard) = lc.process.pid, resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (FULL_BYTES, hard))
        await world.add_job("letters")
        await until_true(prometheus, *PROVOKED["test_a_node_whose_disk_is_full"])


@provokes("EdgeAIRelayRefuses")
async def test_a_worker_that_wants_a_service_nobody_serves(
    world: ManagerAndNode, tmp_path: Path
) -> None:
    async with both(world, tmp_path) as (lc, prometheus):
        secret = await world.secret("digits")
        port = await lc.until_listening("worker")

        async def is_refused() -> bool:
            await ask_relay(port, secret)
            return bool(await prometheus.ask(alerts()["EdgeAIRelayRefuses"]["expr"]))

        await async_eventually("refused streams", is_refused)


@provokes("EdgeAICertificateEndsSoon")
async def test_a_certificate_that_ends_in_a_day(world: ManagerAndNode, tmp_path: Path) -> None:
    pair = Authority(tmp_path).issue("gm", usage="serverAuth", lasts=timedelta(days=1))
    flags = ("--edge-plaintext", "refuse", "--edge-tls-certificate", str(pair.certificate))
    async with (
        world.manager(lease_s=LEASE_S, flags=(*flags, "--edge-tls-key", str(pair.key))),
        scraping(tmp_path, {"east": world.east.http_port}) as prometheus,
    ):
        await until_true(prometheus, "EdgeAICertificateEndsSoon")


@provokes("EdgeAIMemory", "EdgeAIEdgeMemory", "EdgeAIEdgeDisconnected")
async def test_managers_that_have_too_much_memory(world: ManagerAndNode, tmp_path: Path) -> None:
    async with (
        world.manager(lease_s=LEASE_S, release=(BALLOON, "830")),
        node(tmp_path, 1, release=(BALLOON, "210")) as (_lc, at),
        scraping(tmp_path, {"east": world.east.http_port, NODE: at}) as prometheus,
    ):
        await until_true(prometheus, *PROVOKED["test_managers_that_have_too_much_memory"])


@provokes("EdgeAIEdgeLedgerDamaged")
async def test_a_ledger_that_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "ledger.db").write_bytes(b"no database" * 1000)
    async with (
        node(tmp_path, 1) as (_lc, at),
        scraping(tmp_path, {NODE: at}) as prometheus,
    ):
        await until_true(prometheus, "EdgeAIEdgeLedgerDamaged")
