"""A part of the fixed seeds, in a file of its own, which may run beside the other parts."""

from tests.simulation.driver import check_seeds


def test_no_promise_is_broken() -> None:
    check_seeds(range(101, 101 + 12))
