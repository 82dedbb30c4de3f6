"""Curves of metrics as SVG, for a notebook. Pure and total: anybody may have written the lines."""

import html
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from edgeai.faults.summary import CURVES

_WIDTH, _HEIGHT = 240, 40
_EVENT: Final = "metrics"
_LARGEST: Final = sys.float_info.max / 4
"""The difference of two such numbers is a float, too."""


def points_of(lines: Iterable[str]) -> list[dict[str, float]]:
    """The numbers, up to 4e307, of each line that is JSON with the event "metrics"."""
    return [point for line in lines if (point := _point(line))]


def _point(line: str) -> dict[str, float]:
    try:
        event: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(event, Mapping) or event.get("event") != _EVENT:
        return {}
    numbers = {key: value for key, value in event.items() if isinstance(value, int | float)}
    return {key: value for key, value in numbers.items() if -_LARGEST < value < _LARGEST}


def curves(points: Sequence[Mapping[str, float]]) -> str:
    """An SVG for each of the first metrics. The first number of a point is its place: the round."""
    place, *names = dict.fromkeys(name for point in points for name in point) or [""]
    lines = (
        (name, [(one[place], one[name]) for one in points if {place, name} <= one.keys()])
        for name in names[:CURVES]
    )
    return "".join(_curve(name, line) for name, line in lines if line)


def _curve(name: str, points: Sequence[tuple[float, float]]) -> str:
    xs, ys = [x for x, _ in points], [y for _, y in points]
    left, top = min(xs), max(ys)
    wide, tall = max(xs) - left or 1, top - min(ys) or 1
    path = " ".join(
        f"{(x - left) / wide * _WIDTH:.1f},{(top - y) / tall * _HEIGHT:.1f}" for x, y in points
    )
    line = f'<polyline points="{path}" fill="none" stroke="currentColor"/>'
    box = f'<svg width="{_WIDTH}" height="{_HEIGHT}" style="overflow:visible">{line}</svg>'
    return f"<div>{html.escape(name)} {ys[-1]:.4g}<br>{box}</div>"
