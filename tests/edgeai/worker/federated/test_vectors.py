"""How much of the updates is in memory at a time."""

import pytest

from edgeai.worker.federated.vectors import MIN_SLICE_NUMBERS, SLICE_BYTES, slice_numbers


@pytest.mark.parametrize("updates", [1, 2, 10, 500])
def test_more_updates_take_no_more_memory(updates: int) -> None:
    assert SLICE_BYTES / 2 < 4 * slice_numbers(updates, SLICE_BYTES) * (updates + 4) <= SLICE_BYTES


def test_a_slice_is_never_so_small_that_reading_it_is_all_there_is() -> None:
    assert slice_numbers(10**6, SLICE_BYTES) == MIN_SLICE_NUMBERS
