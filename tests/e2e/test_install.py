"""docs/install.md does what it says, from an empty cluster to a running service."""

import pytest

from tests.e2e.conftest import PAGE, REST, THREE
from tests.e2e.document import CHECKOUT, Block, blocks, blocks_below
from tests.e2e.first import POINTS, First

# The first test waits for all commands, each of which is bounded.
pytestmark = pytest.mark.timeout(60, func_only=True)


def test_the_readme_has_the_three_commands() -> None:
    page = [block.text for block in blocks_below(PAGE, THREE)]
    assert [block.text for block in blocks(CHECKOUT / "README.md")] == page[:3]
    assert [text.split()[:2] for text in page[:5]] == [
        *(["edgeai", "credentials"], ["helm", "install"], ["edgeai", "submit"]),
        *(["edgeai", "status"], ["edgeai", "open"]),
    ]


def test_they_lead_to_the_first_curve(first: First) -> None:
    assert len(first.points) == POINTS, first.logs
    assert first.points[0]["seen"] < first.points[1]["seen"]
    assert first.exit_code == 130


def test_each_command_says_what_it_has_done(first: First) -> None:
    credentials, install, submit, status = first.printed
    assert "created Secret edgeai-system/globalmanager-tls" in credentials
    assert "edgeai submit edgeai/demo/joint_inference/first.yaml" in install
    assert "edgeai doctor" in install
    assert "JointInferenceService default/first" in submit
    assert "first" in status


@pytest.mark.parametrize("block", REST, ids=lambda block: f"line {block.line}")
def test_commands_succeed(outcomes: dict[Block, str | AssertionError], block: Block) -> None:
    outcome = outcomes[block]
    if isinstance(outcome, AssertionError):
        raise outcome
