"""The bounds of a soak, and which of them its figures break."""

from collections.abc import Iterator
from typing import Any, Final

from tests.soak.load import WRONG

KIB_PER_MINUTE: Final = 20.0
MORE_FILES: Final = 2  # the pool of connections to the API server breathes
TAKEOVER_S: Final = 15.0 + 1.5 + 0.3  # one Lease, one retry, and the requests


def broken(figures: dict[str, Any]) -> list[str]:
    return list(_broken(figures))


def _broken(figures: dict[str, Any]) -> Iterator[str]:
    for name in (*WRONG, "children_left"):
        if figures[name]:
            yield f"{name}: {figures[name]}, not 0"
    if not figures["created"] == figures["exact"] == figures["deleted"]:
        yield "not every job that was made was exact and is gone"
    for took_s in figures["takeover_s"]:
        if took_s > TAKEOVER_S:
            yield f"takeover_s: {took_s} > {TAKEOVER_S:g}"
    measured = figures["second_half"]
    if sum(name != "edges" for name in measured) < 2:
        yield f"second_half: only {sorted(measured)} lived through it"
    for name, growth in measured.items():
        if growth["kib_per_minute"] > KIB_PER_MINUTE:
            yield f"{name}: kib_per_minute {growth['kib_per_minute']} > {KIB_PER_MINUTE:g}"
        if growth["open_files_more"] > MORE_FILES:
            yield f"{name}: {growth['open_files_more']} more open files"
