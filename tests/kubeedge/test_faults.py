"""Two jobs live through restarts of edgecore and cloudcore, and a reboot without the cloud.

They come one after the other, to the same workers on one edge node.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from edgeai.cli.api import Object, path_of
from tests.e2e.containers import IMAGE
from tests.e2e.service import Service
from tests.e2e.two_jobs import (
    EDGE,
    FILES,
    SEES,
    TRAINER,
    Ledger,
    Row,
    check_counts,
    check_end,
    running_job,
    running_service,
    trainer_pod,
)
from tests.kubeedge.cluster import KubeEdge
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(420, func_only=True)
RATE_PER_S: Final = 4.0
MORE: Final = 15
"""Images that the edge worker counts during a fault."""
ROUNDS: Final = 150
"""More than there are until the reboot."""
BOTH: Final = (SEES, TRAINER)
RESTARTS: Final = ("edgecore", "edgecore without the cloud", "cloudcore")


class Faults:
    """Args: service: counts images on EDGE"""

    def __init__(self, cluster: KubeEdge, service: Service, directory: Path) -> None:
        self._cluster = cluster
        self._node = cluster.edges[EDGE]
        self._service = service
        self._ledger = Ledger(self._node.machine.pid, directory)

    def pods(self) -> dict[str, str]:
        """Worker -> uid."""
        pods = {SEES: self._service.edge_pod(), TRAINER: trainer_pod(self._cluster)}
        return {worker: pod["metadata"]["uid"] for worker, pod in pods.items()}

    def restart_edgecore(self) -> dict[str, Row]:
        with self._node.without_edgecore():
            self._count_more()
        rows = self._count_more()
        self._cluster.wait_until_ready(EDGE)
        return rows

    def restart_edgecore_offline(self) -> dict[str, Row]:
        self._cluster.cut_off(EDGE)
        try:
            with self._node.without_edgecore():
                self._count_more()
            rows = self._count_more()
        finally:
            self._cluster.reconnect(EDGE)
        self._cluster.wait_until_ready(EDGE)
        return rows

    def restart_cloudcore(self) -> dict[str, Row]:
        """It is away until Kubernetes says that the node is silent."""
        self._cluster.cloudcore.stop()
        try:
            self._cluster.wait_until_ready(EDGE, ready=False)
            rows = self._count_more()
            self._service.wait_for_condition("Running", "True")
        finally:
            self._cluster.cloudcore.start()
        self._cluster.wait_until_ready(EDGE)
        return rows

    def reboot(self) -> tuple[dict[str, Row], dict[str, Row], int]:
        """Without the cloud.

        Returns: the ledger in the dark, and with both workers running; `starts_with_token` then
        """
        self._cluster.cut_off(EDGE)
        try:
            self._cluster.lose_power(EDGE)
            dark = self._ledger.rows()
            self._node.start()
            offline = self._ledger.wait_for(
                "both workers after the boot",
                lambda rows: (
                    rows[SEES].process != dark[SEES].process
                    and rows[SEES].info["seen"] >= dark[SEES].info["seen"] + MORE
                    and rows[SEES].info["fallbacks"] > dark[SEES].info["fallbacks"]
                    and rows[TRAINER].process != dark[TRAINER].process
                ),
            )
            starts = self.starts_with_token()
        finally:
            self._cluster.reconnect(EDGE)
        self._cluster.wait_until_ready(EDGE)
        return dark, offline, starts

    def restart_counts(self) -> list[int]:
        """As the kubelet says."""
        pods = (self._service.edge_pod(), trainer_pod(self._cluster))
        return [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods]

    def starts_with_token(self) -> int:
        """How often a container has started whose pod has a token."""
        file = Path(f"/proc/{self._node.machine.pid}/root{FILES}/starts")
        return len(file.read_text().splitlines()) if file.exists() else 0

    def _count_more(self) -> dict[str, Row]:
        enough = self._ledger.rows()[SEES].info["seen"] + MORE
        return self._ledger.wait_for("images", lambda rows: rows[SEES].info["seen"] >= enough)


class Seen(NamedTuple):
    """Args:
    pods: worker -> uid, before and after all
    restarts: the ledger after each of RESTARTS
    dark, offline, starts_offline: as of Faults.reboot
    """

    faults: Faults

    pods: tuple[dict[str, str], dict[str, str]]
    restarts: dict[str, dict[str, Row]]
    dark: dict[str, Row]
    offline: dict[str, Row]
    starts_offline: int


@pytest.fixture(scope="module")
def job(installed: KubeEdge) -> Iterator[Object]:
    with running_job(installed, rounds=ROUNDS) as job:
        yield job


@pytest.fixture(scope="module")
def service(installed: KubeEdge, job: Object) -> Iterator[Service]:
    with running_service(installed, rate_per_s=RATE_PER_S) as service:
        yield service


@pytest.fixture(scope="module")
def pod_with_token(installed: KubeEdge) -> Iterator[None]:
    """A pod with a token of its ServiceAccount, which writes a line at each start."""
    command = ["sh", "-c", "echo started >> /files/starts; exec sleep infinity"]
    mount = {"name": "files", "mountPath": "/files"}
    container = {"name": "main", "image": IMAGE, "command": command, "volumeMounts": [mount]}
    spec = {
        "nodeName": EDGE,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "volumes": [{"name": "files", "hostPath": {"path": FILES}}],
    }
    metadata = {"name": "with-token", "namespace": "default"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    pod = installed.client.create(pod)
    yield
    installed.client.delete(path_of(pod))


@pytest.fixture(scope="module")
def seen(
    installed: KubeEdge,
    service: Service,
    pod_with_token: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Seen:
    service.wait_for_uploads()
    faults = Faults(installed, service, tmp_path_factory.mktemp("ledger"))
    eventually("the start with a token", lambda: faults.starts_with_token() == 1)
    before = faults.pods()
    steps = (faults.restart_edgecore, faults.restart_edgecore_offline, faults.restart_cloudcore)
    restarts = {name: step() for name, step in zip(RESTARTS, steps, strict=True)}
    dark, offline, starts = faults.reboot()
    return Seen(faults, (before, faults.pods()), restarts, dark, offline, starts)


@pytest.mark.parametrize("restart", RESTARTS)
def test_workers_run_on_through_a_restart(seen: Seen, restart: str) -> None:
    for worker in BOTH:
        assert seen.restarts[restart][worker].process == seen.dark[worker].process
        assert seen.restarts[restart][worker].status == "running"


def test_both_workers_start_without_the_cloud(seen: Seen) -> None:
    for worker in BOTH:
        assert seen.offline[worker].process != seen.dark[worker].process
        assert seen.offline[worker].status == "running"


def test_a_pod_with_a_token_starts_once_the_cloud_is_back(seen: Seen) -> None:
    assert seen.starts_offline == 1
    eventually("its second start", lambda: seen.faults.starts_with_token() == 2, timeout_s=300)


def test_the_pods_were_restarted_and_not_replaced(seen: Seen) -> None:
    before, after = seen.pods
    assert before == after
    eventually("the kubelet's word", lambda: seen.faults.restart_counts() == [1, 1])


def test_the_counts_of_both_processes_are_delivered_exactly(service: Service, seen: Seen) -> None:
    check_counts(service, seen.dark[SEES])


def test_the_training_goes_on_to_its_end(installed: KubeEdge, job: Object, seen: Seen) -> None:
    check_end(installed, job, rounds=ROUNDS)
