"""One cluster with nodes for the whole run, on which docs/install.md is done once."""

from collections.abc import Generator, Iterator
from typing import Final

import pytest

from examples.joint_inference import train
from examples.joint_inference.train import Figures
from tests.cluster.binaries import Unavailable
from tests.cluster.cluster import Cluster, prepared
from tests.e2e.document import CHECKOUT, Block, blocks, shell_at
from tests.e2e.images import recipes

PAGE: Final = CHECKOUT / "docs" / "install.md"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    try:
        cluster = prepared(recipes())
    except Unavailable as error:
        pytest.exit(f"make e2e cannot run here: {error}", returncode=pytest.ExitCode.USAGE_ERROR)
    cluster.start()
    try:
        yield cluster
        cluster.check_alive()
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def outcomes(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> dict[Block, str | AssertionError]:
    """The commands of the page, run in order: what each block printed, or why it failed."""
    shell = shell_at(cluster, tmp_path_factory.mktemp("shell"))
    shell.start()
    found: dict[Block, str | AssertionError] = {}
    try:
        for block in blocks(PAGE):
            try:
                found[block] = shell.run(block)
            except AssertionError as error:
                found[block] = error
    finally:
        shell.stop()
    return found


@pytest.fixture(scope="session")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    """Of joint inference, without cluster, containers or network."""
    return train.measure(train.train(tmp_path_factory.mktemp("figures")))


@pytest.fixture(scope="session")
def installed(cluster: Cluster, outcomes: dict[Block, str | AssertionError]) -> Cluster:
    """The cluster after the page."""
    failed = [block.line for block, outcome in outcomes.items() if not isinstance(outcome, str)]
    assert not failed, f"the commands of {PAGE.name}, line {failed[0]}, failed"
    return cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what Kubernetes said last, and how the pods are."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(cluster, Cluster):
        report.sections.append(("Pods", _pods(cluster)))
        report.sections.append(("Cluster", cluster.logs()))
    return report


def _pods(cluster: Cluster) -> str:
    """All, and the ends of the logs of ours."""
    kubectl = cluster.control_plane.kubectl
    shown = [kubectl("get", "pods", "--all-namespaces", "--output=wide").stdout]
    for pod in cluster.client.list("/api/v1/pods"):
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        shown.append(f"--- {namespace}/{name}")
        shown.append(kubectl("describe", "pod", f"--namespace={namespace}", name).stdout[-1500:])
        log = ("logs", f"--namespace={namespace}", "--all-containers", "--tail=15", name)
        shown.append(kubectl(*log).stdout)
    return "\n".join(shown)
