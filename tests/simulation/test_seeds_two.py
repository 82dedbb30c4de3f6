"""A part of the fixed seeds, in a file of its own, which may run beside the other parts."""

import pytest

from tests.simulation.driver import check_seed


@pytest.mark.parametrize("seed", range(101, 101 + 12))
def test_no_promise_is_broken(seed: int) -> None:
    check_seed(seed)
