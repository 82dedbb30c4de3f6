"""Reads the JSONPath of printer columns: a part of Kubernetes' JSONPath. Pure.

The supported syntax: `.status.conditions[?(@.type=="Ready")].status`, `.spec.workers[0].name`,
`.status.conditions[-1:].type`, `['a.b']`, `\\.` within a name, `[*]`. A path with any other syntax
finds nothing.
"""

import functools
import re
from typing import Any

_STEP = re.compile(
    r"""
      \.(?P<field>(?:\\.|[^.\[\]\\])+)
    | \[['"](?P<quoted>[^'"]+)['"]\]
    | \[(?P<star>\*)\]
    | \[(?P<index>-?\d+)\]
    | \[(?P<slice>(?:-?\d+)?:(?:-?\d+)?(?::(?:[1-9]\d*)?)?)\]
    | \[\?\(@(?P<path>(?:\.(?:\\.|[^.\[\]\\=!<>\s)])+)+)\s*
         (?P<operator>==|!=)\s*["']?(?P<value>[^"')]*)["']?\)\]
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
    path = path.strip("{}")
    if not path.startswith((".", "[")):
        path = f".{path}"
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
    fields = value if isinstance(value, dict) else {}
    if step["star"]:
        return list(fields.values()) or items
    if step["index"]:
        index = int(step["index"])
        return [items[index]] if -len(items) <= index < len(items) else []
    if step["slice"]:
        return _slice(items, step["slice"])
    if step["path"]:
        return [item for item in items if _matches(step, item)]
    name = step["quoted"] or step["field"].replace("\\", "")
    return [fields[name]] if name in fields else []


def _slice(items: list[Any], text: str) -> list[Any]:
    """The items of a slice `start:end:stride`. A bound outside the list finds nothing.

    Source: client-go util/jsonpath/jsonpath.go (evalArray)
    """
    start, end, stride = (int(part) if part else None for part in f"{text}::".split(":")[:3])
    first = _position(start, items, default=0)
    last = _position(end, items, default=len(items))
    return items[first:last:stride] if 0 <= first <= last <= len(items) else []


def _position(number: int | None, items: list[Any], *, default: int) -> int:
    """A bound of a slice, counted from the start of the list."""
    position = default if number is None else number
    return position + len(items) if position < 0 else position


def _matches(step: re.Match[str], item: Any) -> bool:
    texts = [
        str(value).lower() if isinstance(value, bool) else str(value)
        for value in find(step["path"], item)
    ]
    return (step["value"] in texts) is (step["operator"] == "==")
