"""docs/install.md does what it says, from an empty cluster to a running service."""

import pytest

from tests.e2e.conftest import FOUR, PAGE, REST
from tests.e2e.document import Block, blocks_below
from tests.e2e.first import POINTS, First

# The first test waits for all commands, each of which is bounded.
pytestmark = pytest.mark.timeout(60, func_only=True)


def test_four_commands_lead_to_the_first_curve(first: First) -> None:
    """The fifth takes everything away."""
    commands = [each.text.splitlines() for each in blocks_below(PAGE, FOUR)]
    assert [len(lines) for lines in commands] == [1] * 5
    assert [lines[0].split()[:2] for lines in commands] == [
        ["edgeai", word] for word in ("install", "submit", "status", "open", "uninstall")
    ]
    assert len(first.points) == POINTS
    assert first.points[0]["seen"] < first.points[1]["seen"]
    assert first.exit_code == 130


def test_each_command_says_what_comes_next(first: First) -> None:
    install, submit, status = first.printed
    assert "edgeai submit edgeai/demo/joint_inference/first.yaml" in install
    assert "edgeai open" in install
    assert "JointInferenceService default/first" in submit
    assert "first" in status


@pytest.mark.parametrize("block", REST, ids=lambda block: f"line {block.line}")
def test_commands_succeed(outcomes: dict[Block, str | AssertionError], block: Block) -> None:
    outcome = outcomes[block]
    if isinstance(outcome, AssertionError):
        raise outcome
