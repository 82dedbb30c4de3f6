"""A hard life with the API server: what the GlobalManagers do while it cannot be used, and after.

Two replicas, each behind a line of its own, and one edge. `keen` tells after seconds that it is
out of contact; `steady` has the usual minute, and no test here lasts so long: it must never say
that it is not ready. No test starts them anew, so each finds them as the one before left them.
"""

import base64
import http
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from edgeai.cli.api import Object, path_of
from edgeai.ids import Uid
from globalmanager.kinds.shared.secrets import worker_secret
from tests.cluster import binaries
from tests.cluster.controlplane import ControlPlane
from tests.cluster.edge import Edge
from tests.cluster.lines import ApiLine, Refusal, Road
from tests.cluster.samples import create_models, service
from tests.support.client import Client
from tests.support.manager import SYSTEM_NAMESPACE, GlobalManager
from tests.support.waiting import eventually

NODE: Final = "edge0"
WORKER: Final = "digits-edge"
STALE_S: Final = 2.0
WATCH_S: Final = 4.0
DEADLINE_S: Final = 2.0
IN_FLIGHT_S: Final = 0.5  # what was asked just before a hardship is lost since then
FROZEN_S: Final = 9.0  # longer than a watch, a request, a list and a Lease
NOTICED_S: Final = WATCH_S + DEADLINE_S + STALE_S + 10.0
FLAGS: Final = (
    *("--watch-s", f"{WATCH_S:g}", "--request-deadline-s", f"{DEADLINE_S:g}"),
    *("--lease-duration-s", "6", "--lease-renew-deadline-s", "4", "--lease-retry-s", "1"),
)
LEADING: Final = "edgeai_leading"
# Beside the others: this one, the roster's two, elector, presence, claims, heartbeat, job, report.
UNTOLD_ASKERS: Final = 9
RETRY_AFTER_S: Final = 4
OF_HA: Final = re.compile(f"^/version$|/namespaces/{SYSTEM_NAMESPACE}/(leases|configmaps)")
CLOCK_S: Final = 0.01  # event loops know the time in milliseconds
OVERLOADED: Final = Refusal(http.HTTPStatus.TOO_MANY_REQUESTS, retry_after_s=RETRY_AFTER_S)
FAILURES: Final = (
    Refusal(http.HTTPStatus.INTERNAL_SERVER_ERROR),
    Refusal(http.HTTPStatus.SERVICE_UNAVAILABLE),
)
IMAGE: Final = "registry.test/other:2"
OTHER: Final = {"spec": {"containers": [{"name": "main", "image": IMAGE}]}}


class Answer(NamedTuple):
    """What a /readyz said."""

    at: float
    is_ready: bool
    reasons: Sequence[str]


class HardshipReplica:
    """A GlobalManager, its line to the API server, and all that its /readyz says."""

    def __init__(self, name: str, directory: Path, control_plane: ControlPlane) -> None:
        self._control_plane = control_plane
        self._directory = directory / name
        self.name = name
        self.line = ApiLine(control_plane.url, ca=control_plane.ca)
        self.answers: list[Answer] = []

    def launch(self, stack: ExitStack, *flags: str) -> None:
        stack.enter_context(self.line)
        self._directory.mkdir()
        self.manager = GlobalManager(
            kubeconfig=self.line.write_kubeconfig(
                self._directory / "kubeconfig", token=self._control_plane.token
            ),
            directory=self._directory,
            flags=("--replica-name", self.name, *FLAGS, *flags),
        )
        self.manager.launch()
        stack.callback(self.manager.stop)

    def ask_for_ever(self, until: threading.Event) -> None:
        while not until.wait(0.1):
            is_ready, reasons = self.manager.readyz()
            self.answers.append(Answer(time.monotonic(), is_ready, reasons))

    def unready(self, since: float) -> list[Answer]:
        return [each for each in self.answers if each.at >= since and not each.is_ready]

    def stale_s(self) -> list[float]:
        """Of each informer."""
        return list(self.manager.metric("edgeai_informer_stale_seconds").values())

    def askers(self) -> int:
        """How many of it ask the API server for something over and over."""
        return len(self.stale_s()) + UNTOLD_ASKERS

    def log(self) -> str:
        return (self._directory / "globalmanager.log").read_text()

    def jobs(self, namespace: str) -> str:
        """The job resources of a namespace, as its cache has them."""
        return self.manager.get(f"/api/v1/namespaces/{namespace}/jointinferenceservices")


class KeenAndSteady:
    def __init__(
        self, control_plane: ControlPlane, keen: HardshipReplica, steady: HardshipReplica
    ) -> None:
        self.control_plane = control_plane
        self.keen, self.steady = keen, steady
        self.replicas = (keen, steady)

    @property
    def client(self) -> Client:
        return self.control_plane.client

    def on_all_lines(self, act: Callable[[ApiLine], None]) -> None:
        for replica in self.replicas:
            act(replica.line)

    def wait_for_contact(self) -> None:
        """Of all informers of both, which are then ready."""

        def check() -> bool:
            stale = [each.name for each in self.replicas if any(each.stale_s())]
            assert not stale, f"{stale} have informers without contact"
            return True

        for replica in self.replicas:
            replica.manager.wait_until_ready()
        eventually("contact with the API", check)

    def wait_for_unreadiness(self, since: float) -> Answer:
        """Of `keen`. Returns: the first one"""
        unready = eventually(
            "unreadiness of keen", lambda: self.keen.unready(since), timeout_s=NOTICED_S
        )
        return unready[0]

    def create_job(self, namespace: str, name: str = "digits") -> Object:
        return self.client.create(service(namespace, name=name))

    def wait_for_children(self, job: Object) -> None:
        def check() -> bool:
            found = self.children(job)
            assert len(found) == 3, f"there are {sorted(found)}"
            return True

        eventually("what the job needs", check)

    def children(self, job: Object) -> dict[str, Object]:
        """Deployments and Services, as "Kind/name"."""
        root = f"namespaces/{job['metadata']['namespace']}"
        selector = f"labelSelector=edgeai.io/uid={job['metadata']['uid']}"
        deployments = self.client.list(f"/apis/apps/v1/{root}/deployments?{selector}")
        services = self.client.list(f"/api/v1/{root}/services?{selector}")
        named = {f"Deployment/{each['metadata']['name']}": each for each in deployments}
        return named | {f"Service/{each['metadata']['name']}": each for each in services}

    def secret_of(self, job: Object) -> str:
        path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/secrets/edgeai-worker-key"
        key = base64.b64decode(self.client.get(path)["data"]["key"])
        return worker_secret(key, Uid(job["metadata"]["uid"]), "edge")

    @contextmanager
    def hardship(self) -> Iterator[float]:
        """Gives: when it begins. Asserts: while it lasts nobody asks too much, `keen` says in
        words that it is not ready, but not before its time, and `steady` never."""
        began = time.monotonic()
        yield began
        lasted_s = time.monotonic() - began
        for replica in self.replicas:
            asked, limit = replica.line.asked(began), self.most_requests(replica, lasted_s)
            print(f"{replica.name}: {asked} requests in {lasted_s:.1f} s, at most {limit:.0f}")
            assert asked <= limit
        assert self.steady.unready(began) == []
        for told in self.keen.unready(began):
            assert told.at >= began + STALE_S - IN_FLIGHT_S
            assert any("no contact for" in reason for reason in told.reasons), told

    def most_requests(self, replica: HardshipReplica, lasted_s: float) -> float:
        """Of each that asks one at once, one when the line was dialled anew, and one a second."""
        return replica.askers() * (2 + lasted_s)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeenAndSteady]:
    """A control plane of its own, without controllers; both replicas are ready."""
    directory = tmp_path_factory.mktemp("hardships")
    (directory / "controlplane").mkdir()
    control_plane = ControlPlane(binaries.obtain(), directory / "controlplane")
    ended = threading.Event()
    with ExitStack() as stack:
        stack.callback(control_plane.stop)
        control_plane.start(with_controllers=False)
        control_plane.prepare()
        control_plane.client.create_named("Node", NODE)
        keen, steady = (
            HardshipReplica(name, directory, control_plane) for name in ("keen", "steady")
        )
        world = KeenAndSteady(control_plane, keen, steady)
        keen.launch(stack, "--stale-after-s", f"{STALE_S:g}")
        steady.launch(stack)
        world.wait_for_contact()
        stack.callback(ended.set)
        for replica in world.replicas:
            asking = threading.Thread(target=replica.ask_for_ever, args=(ended,), daemon=True)
            asking.start()
        yield world


@pytest.fixture
def namespace(world: KeenAndSteady) -> str:
    """A fresh one with the Models of a job; it lasts as long as the control plane."""
    metadata = {"generateName": "test-"}
    made = world.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    name: str = made["metadata"]["name"]
    create_models(world.client, name)
    return name


@pytest.fixture
def mended(world: KeenAndSteady) -> Iterator[None]:
    """Whatever a test did to the lines, the next one finds them well; a failure shows the logs."""
    yield
    for replica in world.replicas:
        print(f"--- {replica.name}\n{replica.manager.logs()}")
        replica.line.delay_s = 0.0
        replica.line.refuse()
        replica.line.mend()
        replica.line.bury()
    world.wait_for_contact()


pytestmark = pytest.mark.usefixtures("mended")


@pytest.fixture
def edge(world: KeenAndSteady, tmp_path: Path) -> Iterator[tuple[Edge, Road]]:
    """Connected to `keen`, over the road."""
    with Road() as road:
        road.lead_to(world.keen.manager.edge_address)
        with Edge(NODE, port=road.port, directory=tmp_path).running() as edge:
            yield edge, road


def test_a_restarted_api_server_is_found_again(world: KeenAndSteady, namespace: str) -> None:
    """It takes no connections while it ends, is then killed with the watches, and starts slowly."""
    with world.hardship():
        world.control_plane.restart_api_server(within_s=1.0)
        job = world.create_job(namespace)
        world.wait_for_children(job)
        world.wait_for_contact()


def test_a_line_that_was_cut_is_told_and_survived(world: KeenAndSteady, namespace: str) -> None:
    with world.hardship() as began:
        world.on_all_lines(lambda line: line.cut("loudly"))
        job = world.create_job(namespace)
        world.wait_for_unreadiness(began)
        world.on_all_lines(lambda line: line.mend())
        world.wait_for_contact()
        world.wait_for_children(job)


def test_a_line_that_died_in_silence_is_told_and_replaced(
    world: KeenAndSteady, namespace: str
) -> None:
    """Nothing is heard ever again over the connections that there were."""
    with world.hardship() as began:
        world.on_all_lines(lambda line: line.cut("silently"))
        job = world.create_job(namespace)
        world.wait_for_unreadiness(began)
        world.on_all_lines(lambda line: line.forget())
        world.on_all_lines(lambda line: line.mend())
        world.wait_for_contact()
        world.wait_for_children(job)


def test_an_api_server_that_fails_at_everything_is_told_and_survived(
    world: KeenAndSteady, namespace: str
) -> None:
    with world.hardship() as began:
        world.on_all_lines(lambda line: line.refuse(*FAILURES))
        job = world.create_job(namespace)
        first = world.wait_for_unreadiness(began)
        assert any(re.search(r"50[03]", reason) for reason in first.reasons), first
        world.on_all_lines(lambda line: line.refuse())
        world.wait_for_contact()
        world.wait_for_children(job)


def test_an_overloaded_api_server_is_left_alone_for_as_long_as_it_asks(
    world: KeenAndSteady, namespace: str
) -> None:
    with world.hardship() as began:
        world.on_all_lines(lambda line: line.refuse(OVERLOADED))
        job = world.create_job(namespace)
        first = world.wait_for_unreadiness(began)
        assert any("429" in reason for reason in first.reasons), first
        for replica in world.replicas:
            # What was on its way when the first was refused may come late, but nobody asks twice.
            asked = [refused_before_rest(replica, began, of_ha=each) for each in (True, False)]
            assert sum(asked) <= replica.askers()
        world.on_all_lines(lambda line: line.refuse())
        world.wait_for_contact()
        world.wait_for_children(job)


def refused_before_rest(replica: HardshipReplica, since: float, *, of_ha: bool) -> int:
    """How much was refused until, for the first time, nothing was asked for RETRY_AFTER_S.

    Args: of_ha: of the client for Leases and heartbeats, which has a rate of its own, or of the
        other one
    """

    def check() -> int:
        refused_at = [
            at
            for at, request in replica.line.refused
            if at >= since and (OF_HA.search(request.path) is not None) is of_ha
        ]
        assert refused_at, "nothing was refused"
        for number, (at, next_at) in enumerate(pairwise([*refused_at, time.monotonic()]), 1):
            if next_at - at >= RETRY_AFTER_S - CLOCK_S:
                return number
        raise AssertionError(f"{len(refused_at)} were refused")

    return eventually(f"a rest of {replica.name}", check, timeout_s=40)


def test_a_slow_api_server_is_used_slowly(world: KeenAndSteady, namespace: str) -> None:
    with world.hardship() as began:
        world.on_all_lines(lambda line: setattr(line, "delay_s", DEADLINE_S / 3))
        world.wait_for_children(world.create_job(namespace))
        assert world.keen.unready(began) == []


def test_a_frozen_api_server_keeps_nobody_from_their_work(
    world: KeenAndSteady, namespace: str, edge: tuple[Edge, Road]
) -> None:
    """The session stays, reports are taken, nobody leads, REST answers; then all is made up for."""
    localcontroller, road = edge
    job = world.create_job(namespace)
    world.wait_for_children(job)
    secret = world.secret_of(job)
    localcontroller.report(WORKER, secret=secret, seen=20, uploaded=2)
    wait_for_count(world.client, job, 2)
    # The first dial may come too early, when the hardship of the test before has just ended.
    dialled = road.connections

    with world.hardship() as began:
        with world.control_plane.frozen_api_server():
            localcontroller.report(WORKER, secret=secret, seen=30, uploaded=3)
            world.wait_for_unreadiness(began)
            eventually("the end of the reign", lambda: nobody_leads(world))
            eventually("all that is told", lambda: all_is_told(world.keen), timeout_s=NOTICED_S)
            assert "digits" in world.keen.jobs(namespace)
            uploaded = 4
            while time.monotonic() < began + FROZEN_S:
                uploaded += 1
                localcontroller.report(WORKER, secret=secret, seen=10 * uploaded, uploaded=uploaded)
                time.sleep(0.5)
        world.wait_for_contact()
        wait_for_count(world.client, job, uploaded)
    assert road.connections == dialled
    told = world.client.get(path_of(job))["status"]
    assert {"key": "seen", "value": f"{10 * uploaded}"} in told["metrics"], told


def nobody_leads(world: KeenAndSteady) -> bool:
    leading = [each.name for each in world.replicas if any(each.manager.metric(LEADING).values())]
    assert not leading, f"{leading} lead"
    return True


def all_is_told(replica: HardshipReplica) -> bool:
    """Of each informer, that it has no contact."""
    told = [each for each in replica.manager.readyz()[1] if "no contact for" in each]
    assert len(told) == len(replica.stale_s()), f"only {told}"
    return True


def wait_for_count(client: Client, job: Object, uploaded: int) -> None:
    def check() -> bool:
        found = (client.get(path_of(job)).get("status") or {}).get("uploadCount")
        assert found == uploaded, f"uploadCount is {found}"
        return True

    eventually(f"uploadCount {uploaded}", check)


def test_what_was_deleted_and_forgotten_meanwhile_is_noticed(
    world: KeenAndSteady, namespace: str, edge: tuple[Edge, Road]
) -> None:
    """410: the history that the watches would go on from is compacted, and no cache has it."""
    localcontroller, _ = edge
    doomed, kept = (world.create_job(namespace, name) for name in ("doomed", "kept"))
    for job in (doomed, kept):
        world.wait_for_children(job)
    wait_for_tasks(localcontroller, namespace, {"doomed", "kept"})
    service_path = f"/api/v1/namespaces/{namespace}/services/kept-cloud"
    before = world.client.get(service_path)["metadata"]["uid"]
    logged = {each.name: len(each.log()) for each in world.replicas}

    with world.hardship():
        world.on_all_lines(lambda line: line.cut("loudly"))
        world.client.delete(path_of(doomed))
        world.client.delete(service_path)
        world.client.patch(path_of(kept), {"spec": {"cloudWorker": {"template": OTHER}}})
        later = world.create_job(namespace, "later")
        world.control_plane.compact()
        world.control_plane.kill_api_server()
        world.on_all_lines(lambda line: line.mend())
        world.control_plane.start_api_server()
        wait_for_tasks(localcontroller, namespace, {"kept", "later"})
        for job in (kept, later):
            world.wait_for_children(job)
        wait_for_image(world, kept)
        world.wait_for_contact()
    assert world.client.get(service_path)["metadata"]["uid"] != before
    for replica in world.replicas:
        assert "(410 Expired)" in replica.log()[logged[replica.name] :]
        assert "doomed" not in replica.jobs(namespace)


def wait_for_image(world: KeenAndSteady, job: Object) -> None:
    def check() -> bool:
        deployment = world.children(job)["Deployment/kept-deployment-cloud"]
        containers = deployment["spec"]["template"]["spec"]["containers"]
        assert containers[0]["image"] == IMAGE, f"containers are {containers}"
        return True

    eventually("the other image", check)


def wait_for_tasks(localcontroller: Edge, namespace: str, names: set[str]) -> None:
    def check() -> bool:
        held = localcontroller.tasks(namespace)
        assert held == names, f"it holds {sorted(held)}"
        return True

    eventually(f"{sorted(names)} on the edge", check)
