"""Many values in few figures."""

import statistics
from collections.abc import Sequence


def spread(values: Sequence[float]) -> dict[str, float]:
    """Least, median, 99th percentile, greatest; at least two values."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    figures = {"min": min(values), "median": cuts[49], "p99": cuts[98], "max": max(values)}
    return {name: round(value, 2) for name, value in figures.items()}
