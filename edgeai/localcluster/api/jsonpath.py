"""Reads the JSONPath of printer columns: a part of Kubernetes' JSONPath.

The supported syntax: `.status.conditions[?(@.type=="Ready")].status`, `.spec.workers[0].name`,
`.status.conditions[-1:].type`, `['a.b']`, `\\.` within a name, `[*]`. A path with any other syntax
finds nothing. Pure; `tables` calls this module.
"""

import functools
import re
from collections.abc import Iterator
from typing import Any

_STEP = re.compile(
    r"""
      \.(?P<field>(?:\\.|[^.\[\]\\])+)
    | \[(?P<index>-?\d+)\]
    | \[(?P<start>-?\d+)?(?P<colon>:)(?P<end>-?\d+)?(?::(?P<stride>[1-9]\d*)?)?\]
    | \[(?P<every>\*)\]
    | \[['"](?P<quoted>[^'"]+)['"]\]
    | \[\?\(@(?P<path>(?:\.(?:\\.|[^.\[\]\\=!<>\s)])+)+)\s*
         (?P<operator>==|!=)\s*["']?(?P<value>[^"')]*)["']?\)\]
    """,
    re.VERBOSE,
)


def find(path: str, document: Any) -> list[Any]:
    """All values at `path`, in the order of the document.

    Returns: an empty list if the document has no such value or the path is not supported
    """
    values = [document]
    for step in _steps(path):
        values = [found for value in values for found in _take(step, value)]
    return values


@functools.lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[re.Match[str], ...]:
    path = path.strip("{}")
    if not path.startswith((".", "[")):
        path = f".{path}"
    steps, position = [], 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            return (_NOTHING,)
        steps.append(match)
        position = match.end()
    return tuple(steps)


def _matched(text: str) -> re.Match[str]:
    match = _STEP.match(text)
    if match is None:
        raise ValueError(text)
    return match


_NOTHING = _matched("[?(@.x==y)]")  # stands for an unsupported path


def _take(step: re.Match[str], value: Any) -> Iterator[Any]:
    if step is _NOTHING:
        return
    if step["index"] is not None:
        yield from _item(value, int(step["index"]))
    elif step["colon"]:
        yield from _slice(_items(value), step)
    elif step["every"]:
        yield from value.values() if isinstance(value, dict) else _items(value)
    elif step["path"]:
        yield from (item for item in _items(value) if _fulfils(step, item))
    else:
        name = step["quoted"] or step["field"].replace("\\", "")
        if isinstance(value, dict) and name in value:
            yield value[name]


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _item(value: Any, index: int) -> list[Any]:
    items = _items(value)
    return [items[index]] if -len(items) <= index < len(items) else []


def _slice(items: list[Any], step: re.Match[str]) -> list[Any]:
    """The items from `start` up to `end`. A bound outside the list finds nothing, as in Kubernetes.

    Source: client-go util/jsonpath/jsonpath.go (evalArray)
    """
    start = _position(step["start"], items, default=0)
    end = _position(step["end"], items, default=len(items))
    if not 0 <= start <= end <= len(items):
        return []
    return items[start : end : int(step["stride"] or 1)]


def _position(text: str | None, items: list[Any], *, default: int) -> int:
    """A bound of a slice, counted from the start of the list."""
    position = default if text is None else int(text)
    return position + len(items) if position < 0 else position


def _fulfils(step: re.Match[str], item: Any) -> bool:
    found = [
        str(value).lower() if isinstance(value, bool) else str(value)
        for value in find(step["path"], item)
    ]
    return (step["value"] in found) is (step["operator"] == "==")
