"""Runs with rounds of incremental learning, whose workers and replicas end at any step."""

import pytest

from tests.simulation.driver import FIRST_WITH_ROUNDS, check_seed


@pytest.mark.parametrize("seed", range(FIRST_WITH_ROUNDS, FIRST_WITH_ROUNDS + 6))
def test_no_promise_is_broken_with_rounds(seed: int) -> None:
    check_seed(seed)
