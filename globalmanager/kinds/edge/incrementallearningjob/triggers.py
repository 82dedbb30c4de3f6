"""When a round begins, and when its model is deployed.

Sedna's operators and metrics, with its tolerance: numbers that differ by less than 10⁻⁶ are equal.
"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from edgeai.api.incrementallearningjob import Samples, Timer, TriggerCondition

DELTA: Final = "_delta"
_TOLERANCE: Final = 1e-6
_DAY_MIN: Final = 24 * 60


def is_met(condition: TriggerCondition | None, value: float) -> bool:
    """Whether the value meets the condition. No condition: always. NaN: never."""
    if condition is None or math.isnan(value):
        return condition is None
    is_equal = abs(value - condition.threshold) < _TOLERANCE
    is_greater = value > condition.threshold and not is_equal
    meanings = {
        (">", "gt"): is_greater,
        (">=", "ge"): is_greater or is_equal,
        ("<", "lt"): not is_greater and not is_equal,
        ("<=", "le"): not is_greater,
        ("!=", "ne"): not is_equal,
    }
    words = (met for words, met in meanings.items() if condition.operator in words)
    return next(words, is_equal)


def shown(condition: TriggerCondition) -> str:
    return f"{condition.metric} {condition.operator} {condition.threshold:g}"


def value_of(metric: str, new: Mapping[str, float], former: Mapping[str, float]) -> float | None:
    """The value that a trigger of the deployment compares; None: the workers did not tell it.

    Args: new, former: metric -> value, of the new model and of the deployed one
    """
    if metric in new:
        return new[metric]
    name, bracket, index = metric.partition("[")
    if not name.endswith(DELTA):
        return None
    plain = name.removesuffix(DELTA) + bracket + index
    if plain not in new or plain not in former:
        return None
    return new[plain] - former[plain]


def closed_s(timer: Timer | None, now: datetime) -> float:
    """Seconds until the time of day in which a round may begin; 0 within it.

    Both minutes belong to it, as in Sedna. An end before the start is on the next day.
    """
    if timer is None:
        return 0.0
    start, end = _minutes(timer.start), _minutes(timer.end)
    length = (end - start) % _DAY_MIN + (end < _DAY_MIN)
    present_s = (now.hour * 60 + now.minute) * 60 + now.second
    passed_s = (present_s - start * 60) % (_DAY_MIN * 60)
    # With 00:00 and 24:00 the whole day.
    if passed_s < length * 60 or end - start >= _DAY_MIN:
        return 0.0
    return float(_DAY_MIN * 60 - passed_s)


def _minutes(text: str) -> int:
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)


def divided(start: int, end: int, share: float) -> tuple[Samples, Samples]:
    """The samples to train on, and those for evaluation: the last ones. Of two or more samples each
    part has one at least; a single sample is for both.

    Args: share: of the samples to train on
    """
    whole = Samples(start, end)
    if end - start < 2:
        return whole, whole
    middle = start + min(max(int(share * (end - start)), 1), end - start - 1)
    return Samples(start, middle), Samples(middle, end)
