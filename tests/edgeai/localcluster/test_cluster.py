"""The cluster as a process: start, stop, kill, and two of them on one machine."""

import asyncio
import os
import select
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgeai.localcluster import process
from edgeai.localcluster.cluster import Cluster, ClusterSettings
from edgeai.localcluster.errors import ClusterError, StateError
from edgeai.localcluster.network.addresses import claim_network
from edgeai.localcluster.objects.resources import NODES, PODS, Object
from edgeai.localcluster.process import StartFailed
from edgeai.localcluster.state import ClusterProcess, StateDirectory, start_ticks
from tests.edgeai.localcluster.running import container, is_gone, new_pod, running_cluster
from tests.support.waiting import PATIENCE_S, eventually

NODE = ("edge0",)


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "state"
    yield path
    process.stop(path)


def call(cluster: ClusterProcess, path: str, body: Object | None = None) -> Any:
    """Over HTTP, as the kubeconfig says."""
    config = msgspec.json.decode(cluster.kubeconfig.read_bytes())
    server = config["clusters"][0]["cluster"]["server"]
    data = None if body is None else msgspec.json.encode(body)
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(server + path, data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return msgspec.json.decode(answer.read())


PODS_PATH = "/api/v1/namespaces/default/pods"


def run_pod(cluster: ClusterProcess, script: str) -> int:
    """A pod that writes the pid of its child to its log. Returns: the pid of its container."""
    call(cluster, PODS_PATH, new_pod("p", container(script)))

    def started() -> int:
        pod = call(cluster, PODS_PATH + "/p")
        for status in pod["status"].get("containerStatuses", []):
            if "running" in status["state"]:
                return int(status["containerID"].removeprefix("process://"))
        return 0

    return eventually("a running container", started)


def test_a_cluster_starts_serves_and_stops(state_dir: Path) -> None:
    cluster = process.start(state_dir)
    assert process.running(state_dir) == cluster
    assert list(cluster.nodes) == ["cloud0", "edge0", "edge1"]
    assert [node["metadata"]["name"] for node in call(cluster, "/api/v1/nodes")["items"]] == list(
        cluster.nodes
    )
    assert process.stop(state_dir)
    assert process.running(state_dir) is None
    assert is_gone(cluster.pid)
    assert not process.stop(state_dir)


def test_secrets_of_the_state_directory_are_the_owners_alone(state_dir: Path) -> None:
    process.start(state_dir, nodes=NODE)
    for name in ("token", "kubeconfig"):
        assert stat.S_IMODE((state_dir / name).stat().st_mode) == 0o600
    assert stat.S_IMODE(state_dir.stat().st_mode) == 0o700


def test_a_killed_cluster_leaves_no_process(state_dir: Path) -> None:
    """No container, no child of one, no reaper."""
    cluster = process.start(state_dir, nodes=NODE)
    pid = run_pod(cluster, "trap '' TERM HUP; sleep 300 & sleep 300; wait")
    group = eventually("a child", lambda: found if len(found := group_of(pid)) >= 2 else None)
    children = children_of(cluster.pid)
    os.kill(cluster.pid, signal.SIGKILL)
    eventually("their end", lambda: all(is_gone(each) for each in [*group, *children]))
    assert process.running(state_dir) is None


def test_a_killed_cluster_leaves_no_process_that_left_its_group(
    state_dir: Path, tmp_path: Path
) -> None:
    cluster = process.start(state_dir, nodes=NODE)
    told = tmp_path / "pid"
    run_pod(cluster, f"setsid sleep 300 & echo $! > {told}; sleep 300")
    eventually("its number", lambda: told.exists() and told.read_text())
    pid = int(told.read_text())
    os.kill(cluster.pid, signal.SIGKILL)
    eventually("its end", lambda: is_gone(pid))


def group_of(leader: int) -> list[int]:
    return [pid for pid in _processes() if _stat_field(pid, 2) == leader]


def children_of(parent: int) -> list[int]:
    return [pid for pid in _processes() if _stat_field(pid, 1) == parent]


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _stat_field(pid: int, index: int) -> int:
    """1: parent, 2: process group."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return -1
    return int(text.rpartition(")")[2].split()[index])


def test_after_a_kill_everything_runs_again(state_dir: Path) -> None:
    cluster = process.start(state_dir, nodes=NODE)
    run_pod(cluster, "exec sleep 300")
    os.kill(cluster.pid, signal.SIGKILL)
    os.waitpid(cluster.pid, 0)
    again = process.start(state_dir, nodes=NODE)

    def restarted() -> bool:
        status = call(again, PODS_PATH + "/p")["status"]["containerStatuses"][0]
        return status["restartCount"] == 1 and "running" in status["state"]

    eventually("a restart", restarted)
    assert again.network == cluster.network


def test_stop_ends_pods_that_do_not_want_to(state_dir: Path) -> None:
    cluster = process.start(state_dir, nodes=NODE)
    pid = run_pod(cluster, "trap '' TERM; touch $HOME/deaf; while :; do sleep 0.1; done")
    eventually("its trap", lambda: list(state_dir.glob("pods/*/deaf")))
    begun = time.monotonic()
    process.stop(state_dir, timeout_s=10)
    assert time.monotonic() - begun < 10
    assert is_gone(pid)
    assert b"cluster stopping" in (state_dir / "cluster.log").read_bytes()


def test_a_held_directory_is_refused_in_one_line(state_dir: Path) -> None:
    process.start(state_dir, nodes=NODE)
    with pytest.raises(StartFailed, match="runs in"):
        process.start(state_dir)


async def test_a_second_cluster_in_a_directory_is_refused(tmp_path: Path) -> None:
    async with running_cluster(tmp_path):
        with pytest.raises(StateError, match="another cluster runs in it"):
            await Cluster(ClusterSettings(state_dir=tmp_path / "state")).run()


def test_an_unusable_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartFailed, match="file"):
        process.start(tmp_path / "file" / "state")


def test_a_corrupt_database_is_refused_in_one_line(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "cluster.db").write_bytes(b"no database" * 1000)
    with pytest.raises(StartFailed, match=r"cluster\.db"):
        process.start(state)


def test_a_bad_node_name_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="--nodes"):
        process.start(tmp_path / "state", nodes=["Edge_0"])


def test_stop_never_signals_a_process_that_only_has_the_pid(tmp_path: Path) -> None:
    """The recorded process has ended, and another process has its pid."""
    state = StateDirectory(tmp_path)
    other = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    try:
        ticks = start_ticks(other)
        assert ticks is not None
        gone = ClusterProcess(
            pid=other,
            start_ticks=ticks - 1,
            api="",
            network="",
            nodes={},
            kubeconfig=state.kubeconfig,
        )
        state.write_running(gone)
        assert process.running(tmp_path) is None
        assert process.stop(tmp_path) is False
        assert not is_gone(other)
    finally:
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)


def test_an_orderly_stop_by_sigint(state_dir: Path) -> None:
    cluster = process.start(state_dir, nodes=NODE)
    pidfd = os.pidfd_open(cluster.pid)
    os.kill(cluster.pid, signal.SIGINT)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    assert poll.poll(10_000)
    os.close(pidfd)
    assert os.waitpid(cluster.pid, 0)[1] == 0
    assert not (state_dir / "cluster.json").exists()


async def test_two_clusters_share_nothing(tmp_path: Path) -> None:
    async with running_cluster(tmp_path / "a") as a, running_cluster(tmp_path / "b") as b:
        assert a.running.network != b.running.network


async def test_a_cluster_without_its_guard_ends(tmp_path: Path) -> None:
    cluster = Cluster(ClusterSettings(state_dir=tmp_path / "state", nodes=NODE))
    ready = asyncio.Event()
    before = set(children_of(os.getpid()))
    life = asyncio.create_task(cluster.run(lambda *_: ready.set()))
    await ready.wait()
    (guard,) = set(children_of(os.getpid())) - before
    os.kill(guard, signal.SIGKILL)
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(life, PATIENCE_S)
    assert caught.group_contains(ClusterError, match="was killed")


async def test_nodes_come_and_go_with_the_settings(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, nodes=("cloud0", "edge0")) as cluster:
        first = cluster.running.nodes
    async with running_cluster(tmp_path, nodes=("edge0", "edge1")) as cluster:
        names = {each["metadata"]["name"] for each in cluster.store.list(NODES).items}
        assert names == {"edge0", "edge1"}
        assert cluster.running.nodes["edge0"] == first["edge0"]


async def test_a_network_that_is_taken_is_left_to_its_owner(tmp_path: Path) -> None:
    """The cluster takes another network, and its nodes and pods get addresses there."""
    async with running_cluster(tmp_path) as cluster:
        number = int(cluster.running.network.removeprefix("127."))
        cluster.store.create(PODS, new_pod("p", container("exec sleep 60")))
        await cluster.until_phase("p", "Running")
    taken = claim_network(number)
    try:
        assert taken.number == number
        async with running_cluster(tmp_path) as cluster:
            network = cluster.running.network
            assert network != taken.prefix
            await cluster.until_pod(
                "p", lambda pod: pod["status"]["podIP"].startswith(network + ".")
            )
            assert cluster.running.nodes["edge0"].startswith(network + ".")
    finally:
        taken.close()


# Ctrl-C in the moment in which the process is there and its number is not yet known.
INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from edgeai.localcluster import process

# Whoever runs the tests in the background has them inherit SIGINT as ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
spawn = os.posix_spawn

def spawn_and_interrupt(*arguments, **options):
    pid = spawn(*arguments, **options)
    print(pid, flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    return pid

os.posix_spawn = spawn_and_interrupt
process.start(Path(sys.argv[1]))
"""


def test_an_interrupt_as_it_starts_leaves_no_cluster(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert "KeyboardInterrupt" in done.stderr
    assert is_gone(int(done.stdout))
