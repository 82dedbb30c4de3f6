"""Runs with rollouts: a fleet gets good and bad versions of a Model in waves."""

import pytest

from tests.simulation.driver import FIRST_WITH_ROLLOUTS, check_seed


@pytest.mark.parametrize("seed", range(FIRST_WITH_ROLLOUTS, FIRST_WITH_ROLLOUTS + 6))
def test_no_promise_is_broken_with_rollouts(seed: int) -> None:
    check_seed(seed)
