"""The identity of edge nodes changes with the release, by the commands of docs/identity.md.

Workers go on, sessions return with their tasks, and no count is lost. These tests run before
test_install.py, which needs an empty cluster, and leave one.
"""

import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests.cluster.deployed import LOCAL_CONTROLLER
from tests.e2e.conftest import PAGE as INSTALL
from tests.e2e.conftest import THREE
from tests.e2e.document import CHECKOUT, Block, Shell, blocks_below, shell_at
from tests.e2e.service import Service
from tests.e2e.two_jobs import EDGE, SEES, Ledger, put_files, running_service
from tests.support.cluster import EDGES, Cluster
from tests.support.inference import counts_of
from tests.support.waiting import eventually

pytestmark = pytest.mark.timeout(330, func_only=True)
PAGE: Final = CHECKOUT / "docs" / "identity.md"
CHANGES: Final = {
    match[1]: block
    for block in blocks_below(PAGE, "## Change the identity")
    if (match := re.search(r"--set edgeAuth=(\w+)", block.text))
}
RATE_PER_S: Final = 5.0
RESULT_S: Final = 300.0
REMOVAL: Final = """\
helm uninstall edgeai --namespace edgeai-system --wait
kubectl delete -f deploy/chart/definitions
kubectl delete namespace edgeai-system
"""


@pytest.fixture(scope="module")
def shell(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """Where edgeai is installed."""
    shell = shell_at(cluster, tmp_path_factory.mktemp("shell"))
    shell.start()
    try:
        for block in blocks_below(INSTALL, THREE)[:2]:
            shell.run(block)
        yield shell
        shell.run(Block(0, REMOVAL))
    finally:
        shell.stop()


@pytest.fixture(scope="module")
def service(
    cluster: Cluster, shell: Shell, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """It counts for longer than all changes take."""
    put_files(cluster, tmp_path_factory.mktemp("files"))
    with running_service(cluster, rate_per_s=RATE_PER_S) as service:
        service.wait_for_uploads()
        yield service


@pytest.fixture(scope="module")
def ledger(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return Ledger(cluster.nodes[EDGE].machine.pid, tmp_path_factory.mktemp("ledger"))


def controllers(cluster: Cluster) -> set[str]:
    """Uids of the pods of LocalControllers that are ready."""
    selector = f"labelSelector=app.kubernetes.io/name={LOCAL_CONTROLLER}"
    pods = cluster.client.list(f"/api/v1/namespaces/edgeai-system/pods?{selector}")
    return {
        pod["metadata"]["uid"]
        for pod in pods
        if any(each["ready"] for each in pod["status"].get("containerStatuses") or ())
    }


def test_the_page_has_each_identity_that_needs_no_kubeedge() -> None:
    assert [*CHANGES] == ["mtls", "token", "serviceaccount"]


@pytest.mark.parametrize("identity", CHANGES)
def test_a_change_keeps_workers_and_tasks(
    cluster: Cluster, shell: Shell, service: Service, ledger: Ledger, identity: str
) -> None:
    pod = service.edge_pod()
    before = ledger.wait_for("the worker", lambda rows: SEES in rows)[SEES]
    older = controllers(cluster)
    shell.run(CHANGES[identity])

    def is_replaced() -> bool:
        present = controllers(cluster)
        assert len(present) == len(EDGES), f"{len(present)} are ready"
        assert not present & older, "a LocalController of before is there"
        return True

    eventually("new LocalControllers", is_replaced)
    service.wait_for_uploads(service.status()["uploadCount"])
    service.wait_for_condition("EdgeConnected", "True")
    assert ledger.wait_for("the worker", lambda rows: SEES in rows)[SEES].process == before.process
    after = service.edge_pod()
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    (container,) = after["status"]["containerStatuses"]
    assert container["restartCount"] == 0


def test_all_is_counted_once(service: Service) -> None:
    service.wait_for_exact_counts(counts_of(service.result(timeout_s=RESULT_S)))
