"""The command where a cluster runs already: `up` again, and what `status` writes to a pipe."""

import json
from collections.abc import Iterator

import pytest

from edgeai.cli import environment
from edgeai.cli.environment import Environment
from tests.edgeai.cli.command import edgeai, start
from tests.support.waiting import eventually

MODEL = "a-model-that-nobody-has-created-and-whose-name-is-long"
TEMPLATE = {"spec": {"containers": [{"name": "worker", "image": "none"}]}}
JOB = {
    "apiVersion": "edgeai.io/v1alpha1",
    "kind": "FederatedLearningJob",
    "metadata": {"name": "digits"},
    "spec": {
        "aggregationWorker": {"model": {"name": MODEL}, "template": TEMPLATE},
        "trainingWorkers": [{"dataset": {"name": "none"}, "template": TEMPLATE}],
    },
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    state_dir = tmp_path_factory.mktemp("running") / "state"
    yield environment.up(state_dir, edges=("edge0",))
    environment.down(state_dir)


@pytest.mark.parametrize("wanted", [(), ("--edges", "1")])
def test_up_again_tells_the_path(running: Environment, wanted: tuple[str, ...]) -> None:
    """The shell hides the status of `export KUBECONFIG="$(edgeai up)"`: the path is what counts."""
    ended = edgeai("up", "--state-dir", str(running.state_dir), *wanted)
    assert (ended.returncode, ended.stdout) == (0, f"{running.kubeconfig}\n")
    assert f"already running in {running.state_dir}, process {running.cluster.pid}" in ended.stderr


def test_up_again_with_other_edges_says_what_runs_and_how_to_end_it(running: Environment) -> None:
    ended = edgeai("up", "--state-dir", str(running.state_dir), "--edges", "2")
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    found = f"{running.state_dir}, process {running.cluster.pid}, edge nodes: 1, not 2"
    assert found in line
    assert "edgeai down" in line


def test_status_in_a_pipe_is_not_folded(
    running: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    running.api.apply(JOB)

    def check() -> bool:
        lines = status_lines(running)
        assert any("default/digits" in line and MODEL in line for line in lines), lines
        return True

    eventually("a line that names the job and its model", check)


def test_a_status_that_is_watched_is_a_line_of_json_each_time(running: Environment) -> None:
    state_dir = str(running.state_dir)
    with start("status", "-w", "-o", "json", "--state-dir", state_dir) as process:
        assert process.stdout is not None
        told = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.terminate()
    names = [{node["name"] for node in each["nodes"]} for each in told]
    assert names == [{"cloud0", "edge0"}] * 2


def test_the_address_of_the_console_as_json(running: Environment) -> None:
    ended = edgeai("open", "--no-browser", "-o", "json", "--state-dir", str(running.state_dir))
    assert json.loads(ended.stdout)["address"].startswith(f"{running.rest_url()}/login?code=")


def status_lines(running: Environment) -> list[str]:
    ended = edgeai("status", "--state-dir", str(running.state_dir))
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()
