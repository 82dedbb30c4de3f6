"""docs/adding-a-kind.md is true: its files, as one folder, are a kind that runs."""

from pathlib import Path

import pytest

from edgeai.cli import environment
from edgeai.cli.api import path_of
from tests.docs.pages import Copy, copy_with
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return copy_with("adding-a-kind.md", tmp_path_factory.mktemp("copy"))


def test_kind_is_one_folder_and_runs(copy: Copy, tmp_path: Path) -> None:
    (crd,) = copy.crds.values()
    state_dir = tmp_path / "state"
    running = environment.up(
        state_dir,
        edges=("edge0",),
        pod_env=copy.environment,
        on_api=lambda started: started.api.apply(crd),
    )
    try:
        applied = running.api.apply(copy.manifest("manifest"))

        def check() -> bool:
            status = running.api.get(path_of(applied)).get("status") or {}
            worker = (status.get("workers") or {}).get("hello-run") or {}
            told = (worker.get("status"), (worker.get("taskInfo") or {}).get("answer"))
            assert told == ("completed", 42), f"status is {status}"
            return True

        eventually("the worker's report in the CR", check)
        running.api.delete(path_of(applied))
    finally:
        environment.down(state_dir)
