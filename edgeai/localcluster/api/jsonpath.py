"""Reads the JSONPath of printer columns: the part of Kubernetes' JSONPath that edgeai's own
definitions use. Pure.

The supported syntax: `.spec.size`, `.subsets[*].addresses`, `.status.conditions[-1:].type`,
`.status.conditions[?(@.type=="Ready")].status`. A path with any other syntax finds nothing.
"""

import functools
import re
from typing import Any

_STEP = re.compile(
    r"""
      \.(?P<field>[^.\[\]\\]+)
    | \[(?P<star>\*)\]
    | \[(?P<last>-1:)\]
    | \[\?\(@\.(?P<key>\w+)=="(?P<value>[^"]*)"\)\]
    """,
    re.VERBOSE,
)


def find(path: str, document: Any) -> list[Any]:
    """All values at `path`, in the order of the document.

    Returns: an empty list if the document has no such value or the path is not supported
    """
    steps = _steps(path)
    values = [document] if steps else []
    for step in steps:
        values = [part for value in values for part in _parts(step, value)]
    return values


@functools.lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[re.Match[str], ...]:
    """The steps of a path; an empty tuple if the path is not supported."""
    steps, position = [], 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return ()
        steps.append(match)
        position = match.end()
    return tuple(steps)


def _parts(step: re.Match[str], value: Any) -> list[Any]:
    """The values one step below `value`."""
    items = value if isinstance(value, list) else []
    if step["star"]:
        return items
    if step["last"]:
        return items[-1:]
    if step["key"]:
        maps = (item for item in items if isinstance(item, dict))
        return [item for item in maps if item.get(step["key"]) == step["value"]]
    name = step["field"]
    return [value[name]] if isinstance(value, dict) and name in value else []
