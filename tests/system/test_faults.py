"""The demo survives: whatever is killed or cut, the CR's counts are exact in the end.

Each test streams the example slowly enough for the fault to fall into the stream.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeai.cli.environment import Environment
from edgeai.demo.cutting_proxy import Manner
from edgeai.demo.joint_inference import story as demo
from edgeai.demo.stage import NAMESPACE
from tests.support.inference import counts_of
from tests.support.waiting import eventually
from tests.system import processes
from tests.system.conftest import IMAGES
from tests.system.digits import CLOUD_MODULE, EDGE_MODULE, PATIENTLY, streaming
from tests.system.line import LOCALCONTROLLER, Line, up_with_line

SLOWLY = {"STREAM_RATE": "100"}  # 400 images in 4 s
CUT_S = 10.0  # a call that is held up by a cut fails, also one of PATIENTLY
GLOBALMANAGER = ("globalmanager",)


@pytest.mark.parametrize(
    "victim", [LOCALCONTROLLER, GLOBALMANAGER], ids=["LocalController", "GlobalManager"]
)
def test_killed_manager_comes_back_and_nothing_is_lost(
    running: Environment, model_files: Path, victim: tuple[str, ...]
) -> None:
    with streaming(running, model_files, **SLOWLY) as stream:
        before = stream.wait_for_uploads()
        edge_worker = processes.pids_of(running, EDGE_MODULE)
        killed = processes.kill(running, *victim)
        processes.wait_for_successor(running, killed, *victim)
        stream.wait_for_uploads(before)
        stream.wait_for_exact_counts(counts_of(stream.result()))
        assert processes.pids_of(running, EDGE_MODULE) == edge_worker, "the worker was disturbed"


def test_killed_edge_worker_comes_back_and_its_counts_are_kept(
    running: Environment, model_files: Path
) -> None:
    with streaming(running, model_files, **SLOWLY) as stream:
        stream.wait_for_uploads()
        told_before = stream.counts()["seen"]
        killed = processes.kill(running, EDGE_MODULE)
        processes.wait_for_successor(running, killed, EDGE_MODULE)
        second = next(stream.results_after_restart())["counts"]["seen"]

        def check() -> bool:
            entry = stream.status()["workers"][f"{demo.SERVICE}-edge"]
            seen = entry["taskInfo"]["seen"]
            runs_again = entry["attempt"] == 2 and entry["status"] == "running"
            is_told = runs_again and seen >= second + told_before
            assert is_told, f"the CR says {entry}"
            return True

        eventually("counts of both processes in the CR", check)


def test_killed_cloud_worker_is_healed_and_the_edge_answers_meanwhile(
    running: Environment, model_files: Path
) -> None:
    # Long enough for the worker's pause after a failed call, at most 5 s, to end within it, and
    # before that the start of another cloud worker, which is slow beside other work.
    with streaming(running, model_files, **SLOWLY, STREAM_REPEAT="4") as stream:
        stream.wait_for_uploads()
        killed = processes.kill(running, CLOUD_MODULE)
        processes.wait_for_successor(running, killed, CLOUD_MODULE)
        answered_before = stream.counts()["answeredByCloud"]
        result = stream.result()
        counts = result["counts"]
        assert counts["fallbacks"] > 0, "the edge was never asked to answer"
        assert counts["answeredByCloud"] > answered_before, "the cloud never answered again"
        assert counts["hard"] == counts["answeredByCloud"] + counts["fallbacks"]
        stream.wait_for_exact_counts(counts_of(result))
        stream.wait_for_condition("Running", "True")


def test_deleted_cloud_pod_is_replaced(running: Environment, model_files: Path) -> None:
    with streaming(running, model_files, **SLOWLY) as stream:
        stream.wait_for_uploads()
        old = cloud_pod(running)
        running.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{old}")
        eventually("another pod", lambda: cloud_pod(running) != old)
        result = stream.result()
        stream.wait_for_exact_counts(counts_of(result))
        stream.wait_for_condition("Running", "True")


def cloud_pod(running: Environment) -> str:
    """Name of the newest pod of the cloud worker."""
    selector = f"edgeai.io/name={demo.SERVICE},edgeai.io/role=cloud"
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={selector}"
    pods = running.api.get(path)["items"]
    newest = max(pods, key=lambda pod: int(pod["metadata"]["resourceVersion"]), default=None)
    alive = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    chosen = alive[0] if alive else newest
    return chosen["metadata"]["name"] if chosen else ""


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    with up_with_line(tmp_path_factory.mktemp("cut") / "state", contact_grace_s=5) as line:
        yield line


@pytest.mark.parametrize("manner", ["silently", "loudly"])
def test_cut_link_loses_nothing(line: Line, model_files: Path, manner: Manner) -> None:
    given = SLOWLY | PATIENTLY | {"STREAM_REPEAT": "2"}
    with streaming(line.running, model_files, **given) as stream:
        before = stream.wait_for_uploads()
        connections = line.proxy.connections
        line.proxy.cut(manner)
        cut_at = time.monotonic()
        line.wait_for_end_of_session()
        stream.wait_for_condition("EdgeConnected", "False")
        time.sleep(max(0.0, cut_at + CUT_S - time.monotonic()))  # the line is cut for real time
        counted = int(stream.status()["uploadCount"])
        line.proxy.mend()
        stream.wait_for_uploads(counted)
        result = stream.result()
        stream.wait_for_exact_counts(counts_of(result))
        assert counted >= before
        assert result["counts"]["fallbacks"] == 0, "the worker noticed a cut that was not its own"
        assert line.proxy.connections > connections, "nothing was cut"
        stream.wait_for_condition("EdgeConnected", "True")


def test_last_counts_outlive_a_cut_line_and_a_killed_local_controller(
    line: Line, model_files: Path
) -> None:
    """The worker is silent from its last report on, so only what was made durable can arrive."""
    with streaming(line.running, model_files, **SLOWLY) as stream:
        stream.wait_for_uploads()
        line.proxy.cut("silently")
        result = stream.result()
        with processes.stopped(line.running, EDGE_MODULE):
            killed = processes.kill(line.running, *LOCALCONTROLLER)
            processes.wait_for_successor(line.running, killed, *LOCALCONTROLLER)
            assert stream.counts()["seen"] < result["counts"]["seen"], "nothing was withheld"
            line.proxy.mend()
            stream.wait_for_exact_counts(counts_of(result))


def test_last_counts_outlive_a_global_manager_that_is_killed_at_once(
    running: Environment, model_files: Path
) -> None:
    with streaming(running, model_files, **SLOWLY) as stream:
        result = stream.result()
        with processes.stopped(running, EDGE_MODULE):
            processes.kill(running, *GLOBALMANAGER)
            stream.wait_for_exact_counts(counts_of(result))
        assert result["counts"]["seen"] == IMAGES


def test_stream_without_fault_counts_exactly(running: Environment, model_files: Path) -> None:
    with streaming(running, model_files, **PATIENTLY) as stream:
        result = stream.result()
        assert result["counts"]["fallbacks"] == 0
        stream.wait_for_exact_counts(counts_of(result))
