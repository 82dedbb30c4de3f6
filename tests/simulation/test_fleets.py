"""Runs with fleets: nodes get and lose their label, and the reports are in slices."""

import pytest

from tests.simulation.driver import FIRST_WITH_FLEETS, check_seed


@pytest.mark.parametrize("seed", range(FIRST_WITH_FLEETS, FIRST_WITH_FLEETS + 8))
def test_no_promise_is_broken_with_fleets(seed: int) -> None:
    check_seed(seed)
