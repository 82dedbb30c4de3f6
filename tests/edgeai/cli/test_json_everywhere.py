"""Every command prints its result as JSON with `-o json`, and nothing else on stdout."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from edgeai.cli.main import app
from edgeai.cli.options import ObjectOutput, Output
from edgeai.demo import stage
from edgeai.demo.joint_inference.story import Outcome
from edgeai.demo.stage import DemoFailed, Stage


def commands(of: Any, name: str = "edgeai") -> Iterator[tuple[str, Any]]:
    if not isinstance(of, TyperGroup):
        yield name, of
        return
    for each, command in of.commands.items():
        yield from commands(command, f"{name} {each}")


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_option(name: str) -> None:
    (output,) = [each for each in COMMANDS[name].params if each.name == "output"]
    assert output.opts == ["-o", "--output"]
    assert output.default in (Output.TABLE, ObjectOutput.TABLE)


def test_every_command_is_looked_at() -> None:
    assert {"edgeai open", "edgeai demo joint-inference"} < COMMANDS.keys()


OUTCOME = Outcome(
    samples=1,
    edge_accuracy=0.5,
    joint_accuracy=0.75,
    cloud_accuracy=1.0,
    upload_ratio=0.5,
    worker_upload_count=1,
    status_upload_count=1,
    transports=["direct"],
)


def story(on: Stage) -> Outcome:
    on.tick("a step")
    return OUTCOME


def test_a_demo_tells_its_story_beside_its_outcome(capfd: pytest.CaptureFixture[str]) -> None:
    assert stage.perform(story, Output.JSON, keep=False) == 0
    told = capfd.readouterr()
    assert json.loads(told.out)["joint_accuracy"] == 0.75
    assert "a step" in told.err


def test_a_demo_ends_with_its_outcome_in_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert stage.perform(story, Output.TABLE, keep=False) == 0
    told = capfd.readouterr()
    assert "a step" in told.out.splitlines()[0]
    assert json.loads(told.out.splitlines()[-1])["transports"] == ["direct"]


def test_a_demo_that_fails_prints_no_outcome(capfd: pytest.CaptureFixture[str]) -> None:
    def failing(_on: Stage) -> Outcome:
        raise DemoFailed("the job failed")

    assert stage.perform(failing, Output.JSON, keep=False) == 1
    told = capfd.readouterr()
    assert told.out == ""
    assert "The demo failed: the job failed" in told.err
