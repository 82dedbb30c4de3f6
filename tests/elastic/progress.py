"""What the example's Horovod script has told, from the output of horovodrun, and figures."""

import json
import re
import statistics
from collections.abc import Iterable
from typing import Any, Final

Event = dict[str, Any]
COMMIT_EVERY: Final = 5  # as horovod_train.py, which only a Python with Horovod can import
_EVENT: Final = re.compile(r'\{"event".*\}')


def events(lines: Iterable[str]) -> list[Event]:
    """The JSON of the script. horovodrun puts "[rank]<stdout>:" before each line."""
    found = (_EVENT.search(line) for line in lines)
    return [json.loads(match.group()) for match in found if match]


def check_size(told: list[Event], count: int) -> bool:
    """Raises: AssertionError unless `count` workers have taken the last step"""
    assert told, "no step"
    assert told[-1]["workers"] == count, told[-1]
    return True


def check_steps(told: list[Event]) -> None:
    """Steps go back by at most one commit interval, and none is left out."""
    before = 0
    for event in told:
        if event["event"] != "progress":
            continue
        step = event["step"]
        assert before - COMMIT_EVERY < step <= before + 1, f"step {step} after step {before}"
        before = step


def shown(what: str, found_s: list[float]) -> float:
    """Print the figures. Returns: the median"""
    median = statistics.median(found_s)
    print(f"{what}: median {median:.2f} s, largest {max(found_s):.2f} s, of {len(found_s)}")
    return median
