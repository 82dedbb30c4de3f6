"""How old values get, by what the nodes reported and what a watch showed."""

import pytest

from tests.bench.statuses import Seen, oldest_s

REPORTED_S = [10 + value / 10 for value in range(30)]  # the values 100 to 129, until 12.9 s

CASES = {
    "nothing was shown": ([], 2.9),
    "the first value came late": ([Seen(12.0, 119)], 2.0),
    "a value stayed long": ([Seen(10.1, 100), Seen(12.5, 124)], 2.5),
    "the last value stayed until the end": ([Seen(10.2, 101)], 2.8),
    "a value of an earlier run": ([Seen(9.9, 99), Seen(10.5, 104)], 2.5),
    "shown after the last report": ([Seen(10.5, 110), Seen(13.5, 129)], 1.9),
}


@pytest.mark.parametrize(("values", "oldest"), CASES.values(), ids=CASES.keys())
def test_the_greatest_age_of_a_value(values: list[Seen], oldest: float) -> None:
    assert oldest_s(values, 100, REPORTED_S) == pytest.approx(oldest)
