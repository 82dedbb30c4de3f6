"""What a check tells, and how the checks read the facts."""

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from edgeai import times
from edgeai.api.resources import Object
from edgeai.cli.doctor.facts import Facts
from edgeai.faults.pod_faults import first_fault

Level = Literal["ok", "warning", "error", "unknown"]
Note = tuple[Level, str] | tuple[Level, str, str]
"""Level, message and, if there is something to do, the remedy."""

INSTALL: Final = "docs/install.md says how to install edgeai"

MAX_NAMED: Final = 5  # things that one finding names
_LEASE_S: Final = 15  # the default duration of a Lease


class Finding(msgspec.Struct, frozen=True):
    """What one check has found. `remedy` is "" when there is nothing to do."""

    check: str
    level: Level
    message: str
    remedy: str = ""


def look(facts: Facts) -> str:
    return f"kubectl -n {facts.namespace} describe pods, and kubectl -n {facts.namespace} logs"


def pod_problem(pods: Sequence[Object]) -> str:
    """What keeps the first pod in trouble from running; "" when no pod says so."""
    fault = first_fault(pods)
    return "" if fault is None else fault.message


def age_s(time: str | None, now: datetime) -> float:
    """Seconds since `time`; infinite when there is none."""
    return (now - times.parse(time)).total_seconds() if time else math.inf


def is_silent(lease_spec: Object, now: datetime) -> bool:
    """Whether its holder has not renewed a Lease for twice its duration."""
    duration_s = float(lease_spec.get("leaseDurationSeconds", _LEASE_S))
    return age_s(lease_spec.get("renewTime"), now) > 2 * duration_s


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - MAX_NAMED
    return ", ".join(names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
