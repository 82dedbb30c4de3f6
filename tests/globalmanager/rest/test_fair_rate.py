"""A shared rate of which nobody gets more than a part."""

import pytest

from edgeai.errors import Overloaded
from globalmanager.rest.fair_rate import FairRate, Rate


def rate() -> FairRate:
    return FairRate(of_source=Rate(1.0, 2), total=Rate(1.0, 3), part="questions")


def test_one_source_leaves_room_for_others_and_takes_nothing_when_refused() -> None:
    limited = rate()
    limited.take("a", 0.0)
    limited.take("a", 0.0)
    for _ in range(10):
        with pytest.raises(Overloaded):
            limited.take("a", 0.0)
    limited.take("b", 0.0)


def test_all_sources_together_have_a_rate() -> None:
    limited = rate()
    for source in "abc":
        limited.take(source, 0.0)
    with pytest.raises(Overloaded):
        limited.take("d", 0.0)
    limited.take("e", 1.0)
