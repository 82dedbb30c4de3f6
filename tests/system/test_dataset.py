"""Datasets on the local cluster: the edge counts, the status says the number or the problem."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgeai.cli import environment, system
from edgeai.cli.api import Object, path_of
from edgeai.cli.environment import Environment
from edgeai.demo.joint_inference.story import EDGE_NODE
from tests.support.waiting import eventually


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    state_dir = tmp_path_factory.mktemp("dataset") / "state"
    tuning = system.Tuning(localcontroller_flags=("--dataset-poll-s", "0.2"))
    yield environment.up(state_dir, tuning=tuning)
    environment.down(state_dir)


def dataset(group: str, name: str, file: Path) -> Object:
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "Dataset",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"url": str(file), "format": "csv", "nodeName": EDGE_NODE},
    }


def wait_for(running: Environment, path: str, samples: int | None, reason: str) -> dict[str, Any]:
    """Until .status has this number, and condition Counted this reason."""
    seen: dict[str, Any] = {}

    def check() -> bool:
        seen.clear()
        seen.update(running.api.get(path).get("status") or {})
        counted = {c["type"]: c for c in seen.get("conditions", ())}.get("Counted", {})
        is_there = (seen.get("numberOfSamples"), counted.get("reason")) == (samples, reason)
        assert is_there, f"status is {seen}"
        return True

    eventually(f"{samples} samples, {reason}", check)
    return seen


@pytest.mark.parametrize("group", ["edgeai.io", "sedna.io"])
def test_the_status_follows_the_file(running: Environment, tmp_path: Path, group: str) -> None:
    file = tmp_path / "faces.csv"
    file.write_text("x,y\n1,2\n3,4\n")
    faces = dataset(group, "faces", file)
    running.api.apply(faces)
    first = wait_for(running, path_of(faces), 2, "Counted")
    assert first["updateTime"].endswith("Z")

    file.write_text("x,y\n1,2\n3,4\n5,6\n")
    wait_for(running, path_of(faces), 3, "Counted")

    file.unlink()
    broken = wait_for(running, path_of(faces), 3, "NotFound")
    assert str(file) in broken["workers"]["faces"]["reason"]

    file.write_text("x,y\n1,2\n")
    wait_for(running, path_of(faces), 1, "Counted")


def test_another_spec_is_counted_anew(running: Environment, tmp_path: Path) -> None:
    file = tmp_path / "more.csv"
    file.write_text("x,y\n1,2\n")
    more = dataset("edgeai.io", "more", file)
    running.api.apply(more)
    wait_for(running, path_of(more), 1, "Counted")
    running.api.patch(path_of(more), {"spec": {"format": "parquet"}})
    wait_for(running, path_of(more), 1, "UnknownFormat")
    running.api.patch(path_of(more), {"spec": {"format": "txt"}})
    wait_for(running, path_of(more), 2, "Counted")
