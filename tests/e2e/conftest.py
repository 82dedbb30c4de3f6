"""One cluster with nodes for the whole run, on which docs/install.md is done once.

First the three commands, and what takes their installation away again; then all the rest.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from edgeai.demo.joint_inference import train
from edgeai.demo.joint_inference.train import Figures
from tests.cluster.binaries import Unavailable
from tests.e2e.document import ADDRESS, CHECKOUT, Block, blocks, blocks_below, shell_at
from tests.e2e.first import POINTS, First, opened
from tests.e2e.images import recipes
from tests.e2e.reports import pytest_runtest_makereport as pytest_runtest_makereport
from tests.support.cluster import Cluster, prepared

PAGE: Final = CHECKOUT / "docs" / "install.md"
THREE: Final = "## In three commands"
LOGS: Final = """
edgeai status
kubectl get jointinferenceservices.edgeai.io --output yaml
for namespace in edgeai-system default; do
  for pod in $(kubectl --namespace $namespace get pods --output name); do
    kubectl --namespace $namespace logs $pod --all-containers --prefix --tail 100
  done
done
"""
REST: Final = [each for each in blocks(PAGE) if each not in blocks_below(PAGE, THREE)]


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    try:
        cluster = prepared(recipes())
    except Unavailable as error:
        pytest.exit(f"make e2e cannot run here: {error}", returncode=pytest.ExitCode.USAGE_ERROR)
    with cluster.running():
        yield cluster


@pytest.fixture(scope="session")
def first(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> First:
    """What the three commands led to, on the empty cluster. It is empty again."""
    *commands, away = blocks_below(PAGE, THREE)
    directory = tmp_path_factory.mktemp("first")
    shell = shell_at(cluster, directory)
    shell.start()
    try:
        printed = [shell.run(block) for block in commands[:-1]]
        found = opened(shell.beside(commands[-1]), directory / ADDRESS, printed)
        if len(found.points) < POINTS:
            found = found._replace(logs=shell.run(Block(0, LOGS)))
        shell.run(away)
    finally:
        shell.stop()
    return found


@pytest.fixture(scope="session")
def outcomes(
    cluster: Cluster, first: First, tmp_path_factory: pytest.TempPathFactory
) -> dict[Block, str | AssertionError]:
    """The other commands of the page, run in order: what each printed, or why it failed."""
    shell = shell_at(cluster, tmp_path_factory.mktemp("shell"))
    shell.start()
    found: dict[Block, str | AssertionError] = {}
    try:
        for block in REST:
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
