"""Two GlobalManagers: both serve, one reconciles, and whatever happens to it the other goes on.

The edge dials one or the other on a road of its own.
"""

import base64
import json
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli.api import Object, path_of
from edgeai.ids import Uid
from globalmanager.kinds.shared.secrets import worker_secret
from tests.cluster.controlplane import ControlPlane
from tests.cluster.edge import Edge
from tests.cluster.lines import Request, Road
from tests.cluster.replicas import Replica, Replicas
from tests.cluster.samples import service
from tests.support.waiting import PATIENCE_S, eventually

NODE: Final = "edge0"
TOKEN: Final = "secret-of-edge0"
WORKER: Final = "digits-edge"
DURATION_S: Final = 3.0
GRACE_S: Final = 3.0
SILENCE_S: Final = 2.5
LEASE: Final = (
    *("--lease-duration-s", f"{DURATION_S:g}"),
    *("--lease-renew-deadline-s", "2", "--lease-retry-s", "0.4"),
)
SESSION: Final = (
    *("--session-opening-s", "1.5", "--session-beat-s", "0.7"),
    *("--session-silence-s", f"{SILENCE_S:g}"),
)
# The lease runs out, the other one looks, and two slow cores do the rest.
TAKEOVER_S: Final = DURATION_S + 5.0
RELEASED_S: Final = 2.0
NOT_NOW: Final = "GlobalManager answers the handshake with 503"
REFUSALS: Final = 3
EVERYBODYS: Final = ("/secrets", "/leases", "/configmaps")


class ReplicasOnRoad(Replicas):
    """Two replicas, and a road on which one edge dials one or the other."""

    def __init__(self, control_plane: ControlPlane, namespace: str, directory: Path) -> None:
        super().__init__(
            control_plane,
            namespace,
            directory,
            tokens={NODE: TOKEN},
            flags=("--contact-grace-s", f"{GRACE_S:g}", *LEASE, *SESSION),
        )
        self.road = Road()

    def send_edge_to(self, first: Replica, *others: Replica) -> None:
        self.road.lead_to(*(each.manager.edge_address for each in (first, *others)))

    def create_job(self, name: str = "digits") -> Object:
        job = self.client.create(service(self.namespace, name=name))
        self.wait_for_children(name)
        return job

    def children(self, name: str) -> dict[str, str]:
        """Deployments and Services of a job -> uid."""
        root = f"namespaces/{self.namespace}"
        found = [
            *self.client.list(f"/apis/apps/v1/{root}/deployments"),
            *self.client.list(f"/api/v1/{root}/services"),
        ]
        metadata = [each["metadata"] for each in found]
        return {each["name"]: each["uid"] for each in metadata if _owner(each) == name}

    def wait_for_children(self, name: str) -> None:
        def check() -> bool:
            found = self.children(name)
            assert len(found) == 3, f"there are {sorted(found)}"
            return True

        eventually(f"what {name} needs", check)

    def wait_for_contact(self, job: Object, status: str, *, timeout_s: float = PATIENCE_S) -> None:
        def check() -> bool:
            conditions = (self.client.get(path_of(job)).get("status") or {}).get("conditions", ())
            found = {each["type"]: each for each in conditions}.get("EdgeConnected", {})
            assert found.get("status") == status, f"EdgeConnected is {found}"
            return True

        eventually(f"EdgeConnected={status}", check, timeout_s=timeout_s)

    def report(self, edge: Edge, job: Object, uploaded: int) -> None:
        secrets = f"/api/v1/namespaces/{self.namespace}/secrets/edgeai-worker-key"
        key = base64.b64decode(self.client.get(secrets)["data"]["key"])
        secret = worker_secret(key, Uid(job["metadata"]["uid"]), "edge")
        edge.report(WORKER, secret=secret, seen=10 * uploaded, uploaded=uploaded)

    def wait_for_count(self, job: Object, uploaded: int) -> None:
        def check() -> bool:
            found = (self.client.get(path_of(job)).get("status") or {}).get("uploadCount")
            assert found == uploaded, f"uploadCount is {found}"
            return True

        eventually(f"uploadCount {uploaded}", check)


def reconciler_writes(replica: Replica, since: float = 0.0) -> list[Request]:
    """What passed its line, without what every replica may write: the key that they share,
    its candidacy, its presence, and what its edges report.

    Args:
        since: only what it sent later, on the monotonic clock. What was on its way when the
            line was cut arrives after the mending; the API server refuses what is out of date.
    """
    return [
        write
        for write in replica.line.writes
        if write.sent_at >= since
        and not any(plural in write.path for plural in EVERYBODYS)
        and b'"workers"' not in write.body
    ]


def _owner(metadata: Object) -> str:
    return str(next((each["name"] for each in metadata.get("ownerReferences") or ()), ""))


@pytest.fixture
def world(
    crds: ControlPlane, namespace: str, nodes: tuple[str, ...], tmp_path: Path
) -> Iterator[ReplicasOnRoad]:
    """Both are ready, one leads; no edge yet."""
    assert NODE in nodes
    world = ReplicasOnRoad(crds, namespace, tmp_path)
    with world.running(), world.road:
        yield world


@pytest.fixture
def edge(world: ReplicasOnRoad, tmp_path: Path) -> Iterator[Edge]:
    """Not started."""
    directory = tmp_path / "edge"
    edge = Edge(NODE, token=TOKEN, port=world.road.port, directory=directory, flags=SESSION)
    yield edge
    edge.stop(signal.SIGKILL)
    print(f"--- edge\n{edge.logs()}")


def connected_nodes(replica: Replica) -> list[str]:
    items = json.loads(replica.manager.get("/api/v1/nodes"))["items"]
    return [each["name"] for each in items if each["connected"]]


def test_both_serve_edges_and_rest_and_one_reconciles(world: ReplicasOnRoad, edge: Edge) -> None:
    """The edge is the follower's; the leader knows of it, and of its end within the grace."""
    leader, follower = world.roles()
    world.send_edge_to(follower)
    edge.start()
    job = world.create_job()
    world.wait_for_contact(job, "True")
    world.report(edge, job, uploaded=7)
    world.wait_for_count(job, 7)
    assert reconciler_writes(follower) == []
    assert any(b'"workers"' in write.body for write in follower.line.writes)
    assert [connected_nodes(each) for each in world.replicas] == [[NODE], [NODE]]
    metrics = {each.name: each.manager.get("/metrics") for each in world.replicas}
    assert "edgeai_leading 1.0" in metrics[leader.name]
    assert "edgeai_leading 0.0" in metrics[follower.name]

    edge.stop(signal.SIGKILL)
    world.wait_for_contact(job, "False", timeout_s=GRACE_S + SILENCE_S + 5)
    assert reconciler_writes(follower) == []


def test_a_killed_leader_is_followed_within_the_lease(world: ReplicasOnRoad, edge: Edge) -> None:
    leader, follower = world.roles()
    world.send_edge_to(leader, follower)
    edge.start()
    job = world.create_job()
    world.report(edge, job, uploaded=3)
    world.wait_for_count(job, 3)
    before, epoch = world.children("digits"), world.leaders_lease()["leaseTransitions"]

    leader.manager.stop(signal.SIGKILL)
    world.report(edge, job, uploaded=5)
    world.wait_for_leader(follower, timeout_s=TAKEOVER_S)
    world.wait_for_count(job, 5)
    assert world.leaders_lease()["leaseTransitions"] == epoch + 1
    world.create_job("later")
    assert world.children("digits") == before
    world.wait_for_contact(job, "True")


def test_a_leader_that_was_frozen_writes_nothing_when_it_wakes(world: ReplicasOnRoad) -> None:
    leader, follower = world.roles()
    world.create_job()
    wait_until_it_rests(
        leader
    )  # a write that is about to leave when it freezes leaves when it wakes
    leader.manager.send(signal.SIGSTOP)
    names = [f"more{number}" for number in range(5)]
    for name in names:  # the frozen one will see these at once, and that it does not lead
        world.client.create(service(world.namespace, name=name))
    world.wait_for_leader(follower, timeout_s=TAKEOVER_S)
    for name in names:
        world.wait_for_children(name)
    before = {name: world.children(name) for name in ("digits", *names)}

    woken_at = time.monotonic()
    leader.manager.send(signal.SIGCONT)
    world.client.delete(f"/api/v1/namespaces/{world.namespace}/services/digits-cloud")
    world.wait_for_children("digits")
    wait_until_it_follows(leader)
    assert reconciler_writes(leader, since=woken_at) == []
    after = {name: world.children(name) for name in ("digits", *names)}
    assert {name: after[name] for name in names} == {name: before[name] for name in names}
    assert world.leader() is follower


def test_a_leader_that_is_cut_off_writes_nothing_more(world: ReplicasOnRoad, edge: Edge) -> None:
    """Its edge stays with it, out of reach; its reports arrive when the line is mended."""
    leader, follower = world.roles()
    world.send_edge_to(leader)
    edge.start()
    job = world.create_job()
    world.wait_for_contact(job, "True")
    world.report(edge, job, uploaded=2)
    world.wait_for_count(job, 2)
    before = world.children("digits")

    leader.line.cut("silently")
    world.wait_for_leader(follower, timeout_s=TAKEOVER_S)
    follows_at = time.monotonic()
    world.report(edge, job, uploaded=4)
    world.create_job("later")
    # What the one that is cut off would now write, were it still the leader.
    world.wait_for_contact(job, "False")
    leader.line.mend()
    world.wait_for_count(job, 4)
    world.wait_for_contact(job, "True")
    wait_until_it_follows(leader)
    assert reconciler_writes(leader, since=follows_at) == []
    assert world.children("digits") == before
    assert world.leader() is follower


def test_a_replica_that_does_not_hear_the_api_takes_no_task_from_a_node(
    world: ReplicasOnRoad, edge: Edge
) -> None:
    """The node comes from a replica that has given it a task which the other does not know."""
    current, deaf = world.roles()
    world.send_edge_to(current)
    edge.start()
    known = world.create_job("faces")
    world.wait_for_contact(known, "True")
    deaf.line.cut("silently")
    eventually("its silence", lambda: "replica is silent" in current.manager.logs())
    later = world.create_job()
    world.report(edge, later, uploaded=3)
    world.wait_for_count(later, 3)

    current.manager.stop(signal.SIGKILL)
    world.send_edge_to(deaf)
    eventually("refusals", lambda: edge.logs().count(NOT_NOW) >= REFUSALS)
    assert edge.tasks(world.namespace) == {"faces", "digits"}
    world.report(edge, later, uploaded=5)

    deaf.line.mend()
    world.wait_for_count(later, 5)
    assert edge.tasks(world.namespace) == {"faces", "digits"}


def test_a_leader_that_is_told_to_end_hands_over_at_once(world: ReplicasOnRoad, edge: Edge) -> None:
    leader, follower = world.roles()
    world.send_edge_to(leader, follower)
    edge.start()
    job = world.create_job()
    world.wait_for_contact(job, "True")
    world.report(edge, job, uploaded=2)
    world.wait_for_count(job, 2)

    with ThreadPoolExecutor(1) as pool:
        ending = pool.submit(leader.manager.stop)
        world.wait_for_leader(follower, timeout_s=RELEASED_S)
        assert ending.result() == 0
    world.report(edge, job, uploaded=6)
    world.wait_for_count(job, 6)
    assert "GlobalManager is stopping" in edge.logs()
    config_maps = world.client.list(f"/api/v1/namespaces/{world.namespace}/configmaps")
    published = [each for each in config_maps if "edgeai" in each["metadata"]["name"]]
    assert len(published) <= 1, "the one that ended left nothing behind"


def test_a_leader_that_is_told_to_end_gives_up_the_lease_before_all_else(
    world: ReplicasOnRoad,
) -> None:
    """Only then are its edges told to go, and may take their time, and the others forget it."""
    leader, _ = world.roles()
    assert leader.manager.stop() == 0
    ends = [_end_of(write) for write in leader.line.writes]
    assert next(filter(None, ends)) == "reign"
    assert "presence" in ends


def _end_of(write: Request) -> str:
    """What a write of a replica ends, if anything."""
    if write.method == "DELETE":
        return "presence"
    is_lease = write.path.endswith("/leases/edgeai-globalmanager")
    return "reign" if is_lease and b'"holderIdentity":""' in write.body else ""


def wait_until_it_rests(replica: Replica) -> None:
    """Until it has written nothing for a second."""

    def check() -> bool:
        return not reconciler_writes(replica, since=time.monotonic() - 1.0)

    eventually(f"{replica.name} to rest", check)


def wait_until_it_follows(replica: Replica) -> None:
    eventually(
        f"{replica.name} to follow", lambda: "edgeai_leading 0.0" in replica.manager.get("/metrics")
    )
