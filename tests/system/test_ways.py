"""Of a broken job the first line of each place names the cause: command, console, conditions.

The jobs break side by side on one local cluster, each in a namespace of its own. At most AHEAD of
them are there before their turn comes, so that the machine runs the pods of a few jobs at a time.
"""

import itertools
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from edgeai.cli import environment, system
from edgeai.cli.api import Object, path_of
from edgeai.cli.environment import Environment
from tests.support.waiting import eventually
from tests.ways import table
from tests.ways.drafts import Draft, Place, draft
from tests.ways.looks import Looks, Site, look, wrong
from tests.ways.table import WAYS, Case, name_of

GANG: Final = Path(__file__).parents[1] / "cluster" / "podgroups.yaml"
pytestmark = pytest.mark.timeout(300)
CONTACT_GRACE_S: Final = 5
AHEAD: Final = 16
LOG_LINES: Final = 50
CASES: Final[list[Case]] = sorted(
    ((way, kind) for way in WAYS for kind in way.kinds), key=lambda case: case[0].after_s
)
"""Those that take a minute come last; they begin with the first ones."""


class BrokenJobs:
    """The jobs of one cluster. Args: place: see `drafts`"""

    def __init__(self, running: Environment, place: Place) -> None:
        self.running = running
        self._site = Site(running.kubeconfig, running.rest_url(), running.api.get)
        self._place = place
        self._later: Iterator[Case] = iter(())
        self._drafts: dict[str, Draft] = {}  # by the case's name
        self._began_s: dict[str, float] = {}

    def start(self, cases: Sequence[Case]) -> None:
        """Create the objects of the first cases, and of those that take longest.

        Args: cases: in the order of their turns
        """
        for node in (table.IDLE_NODE, table.TAINTED_NODE, table.FULL_NODE):
            self.running.api.create(_node(node))
        self._stop_local_controller(table.SILENT_NODE)
        slow = [case for case in cases if case[0].after_s]
        self._later = iter([case for case in cases if not case[0].after_s])
        for case in (*slow, *itertools.islice(self._later, AHEAD)):
            self._create(case)

    def _create(self, case: Case) -> None:
        way, kind = case
        namespace = name_of(case).lower().replace(" ", "-").replace(",", "")
        made = self._drafts[name_of(case)] = draft(kind, namespace, self._place)
        way.spoil(made)
        api = self.running.api
        metadata = {"name": namespace, "labels": made.labels}
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        for object_ in (*made.before, made.object):
            api.create(object_)
        self._began_s[name_of(case)] = time.monotonic()

    def _stop_local_controller(self, node: str) -> None:
        name = system.localcontroller_of(node)
        path = f"/apis/apps/v1/namespaces/{system.NAMESPACE}/deployments/{name}"
        self.running.api.patch(path, {"spec": {"replicas": 0}})

    def wait_until_told(self, case: Case) -> None:
        """Raises: NeverHappened, which says what is told instead"""
        way, _ = case
        began_s = self._began_s[name_of(case)]
        while (left_s := began_s + way.after_s - time.monotonic()) > 0:
            self._feed(case)
            time.sleep(min(left_s, 1.0))

        def check() -> bool:
            self._feed(case)
            lacks = wrong(self.look(case), way, self._drafts[name_of(case)])
            assert not lacks, "\n".join(lacks)
            return True

        try:
            eventually(f"the cause of {way.name}", check, poll_s=1.0)
        except Exception as error:
            error.add_note("\n".join(self._record()))
            raise
        finally:
            self._delete(case)
            for following in itertools.islice(self._later, 1):
                self._create(following)

    def _delete(self, case: Case) -> None:
        """End the pods of a case, which would start again and again."""
        made = self._drafts[name_of(case)]
        for object_ in (made.object, *made.before):
            self.running.api.delete(path_of(object_))

    def _record(self) -> Iterator[str]:
        """What the GlobalManager complained of, and the Events and restarts of its namespace."""
        api, core = self.running.api, f"/api/v1/namespaces/{system.NAMESPACE}"
        for pod in api.get(f"{core}/pods")["items"]:
            name = pod["metadata"]["name"]
            yield f"{name}: {pod.get('status')}"
            lines = api.log(system.NAMESPACE, name)
            yield from [line for line in lines if '"level": "info"' not in line][-LOG_LINES:]
        for event in api.get(f"{core}/events")["items"]:
            yield f"{event.get('lastTimestamp')} {event.get('reason')}: {event.get('message')}"

    def look(self, case: Case) -> Looks:
        """Raises: ApiError; OSError when the console does not answer"""
        return look(self._site, self._drafts[name_of(case)], is_calm=case[0].is_calm)

    def _feed(self, case: Case) -> None:
        """Write the status that a kubelet would write, to the pods that have none yet."""
        way, _ = case
        if way.feed is None:
            return
        namespace = self._drafts[name_of(case)].namespace
        pods = f"/api/v1/namespaces/{namespace}/pods"
        for pod in self.running.api.get(pods)["items"]:
            is_new = not (pod.get("status") or {}).get("startTime")
            if is_new and pod["spec"].get("nodeName") == table.IDLE_NODE:
                path = f"{pods}/{pod['metadata']['name']}/status"
                self.running.api.patch(path, {"status": _status(pod, way.feed)})


def _status(pod: Object, fed: Object) -> dict[str, Any]:
    """The status of this pod: the names of its containers, and a start."""
    scheduled = {"type": "PodScheduled", "status": "True"}
    scheduled["lastTransitionTime"] = pod["metadata"]["creationTimestamp"]
    status = {
        **fed,
        "startTime": pod["metadata"]["creationTimestamp"],
        "conditions": [scheduled, *fed.get("conditions", [])],
    }
    if "containerStatuses" in fed:
        (one,) = fed["containerStatuses"]
        names = [each["name"] for each in pod["spec"]["containers"]]
        status["containerStatuses"] = [{**one, "name": name} for name in names]
    return status


def _node(name: str) -> Object:
    taints = {
        table.TAINTED_NODE: {"key": "gpu", "value": "true", "effect": "NoSchedule"},
        table.FULL_NODE: {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"},
    }
    taint = taints.get(name)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {"taints": [taint] if taint else []},
    }


# ---- the tests ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jobs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokenJobs]:
    directory = tmp_path_factory.mktemp("ways")
    program = directory / "program"
    program.write_bytes(b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\0\xff\x7f" + bytes(44))
    program.chmod(0o755)
    flags = ("--contact-grace-s", str(CONTACT_GRACE_S))
    tuning = system.Tuning(globalmanager_flags=flags)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        running = environment.up(directory / "state", tuning=tuning)
        try:
            found = BrokenJobs(running, Place(program, taken.getsockname()[1]))
            found.start(_selected(request, is_queued=False))
            yield found
        finally:
            environment.down(directory / "state")


@pytest.fixture(scope="module")
def queued_jobs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokenJobs]:
    """The jobs of a cluster with a gang scheduler whose queue admits nothing."""
    directory = tmp_path_factory.mktemp("queued")
    tuning = system.Tuning(globalmanager_flags=("--gang-scheduler-name", "volcano"))

    def define(running: Environment) -> None:
        for document in yaml.safe_load_all(GANG.read_text()):
            running.api.apply(document)

    running = environment.up(directory / "state", tuning=tuning, on_api=define)
    try:
        found = BrokenJobs(running, Place(Path(), 0))
        found.start(_selected(request, is_queued=True))
        yield found
    finally:
        environment.down(directory / "state")


def _selected(request: pytest.FixtureRequest, *, is_queued: bool) -> list[Case]:
    """The cases of the tests that run."""
    items = (getattr(item, "callspec", None) for item in request.session.items)
    chosen = [item.params["case"] for item in items if item and "case" in item.params]
    return [case for case in chosen if case[0].is_queued == is_queued]


@pytest.mark.parametrize("case", [case for case in CASES if not case[0].is_queued], ids=name_of)
def test_the_first_line_names_the_cause(jobs: BrokenJobs, case: Case) -> None:
    jobs.wait_until_told(case)


@pytest.mark.parametrize("case", [case for case in CASES if case[0].is_queued], ids=name_of)
def test_the_first_line_names_the_queue(queued_jobs: BrokenJobs, case: Case) -> None:
    queued_jobs.wait_until_told(case)
