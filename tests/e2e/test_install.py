"""docs/install.md does what it says, from an empty cluster to a running service."""

import pytest

from tests.e2e.conftest import PAGE
from tests.e2e.document import Block, blocks

# The first block waits for all of them, each of which is bounded.
pytestmark = pytest.mark.timeout(60, func_only=True)


@pytest.mark.parametrize("block", blocks(PAGE), ids=lambda block: f"line {block.line}")
def test_commands_succeed(outcomes: dict[Block, str | AssertionError], block: Block) -> None:
    outcome = outcomes[block]
    if isinstance(outcome, AssertionError):
        raise outcome
