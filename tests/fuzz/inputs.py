"""Inputs made of seeds: trees (JSON, msgpack) with odd values in some places, and changed bytes.

The seeds are in tests/fuzz/seeds, one folder for each target. An input that once broke something
becomes a seed.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

SEEDS: Final = Path(__file__).parent / "seeds"
TIMES: Final = int(os.environ.get("FUZZ_TIMES", "1"))

_WORDS: Final = st.sampled_from(
    ["", "a", "edge0", "..", "/", "\0", "\x1b[31m", "<" * 300, "é" * 99, "None", "-1", "1e999"]
)
_NUMBERS: Final = st.sampled_from([0, -1, 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 0.5, 1e308])
ODD: Final = st.one_of(
    st.none(),
    st.booleans(),
    _NUMBERS,
    _WORDS,
    st.just([]),
    st.just({}),
    st.lists(_WORDS, max_size=3),
    st.dictionaries(_WORDS, _NUMBERS, max_size=3),
    st.integers(2, 60).map(lambda depth: _nested(depth)),
)


def seeds(target: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((SEEDS / target).iterdir())]


def fuzzed(
    target: str, strategy: st.SearchStrategy[bytes], *, inputs: int
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A test that gets the seeds and so many inputs of the strategy as `data`."""

    def decorated(test: Callable[..., Any]) -> Callable[..., Any]:
        test = given(data=strategy)(test)
        for seed in seeds(target):
            test = example(data=seed)(test)
        return settings(
            max_examples=inputs * TIMES,
            derandomize=TIMES == 1,
            suppress_health_check=list(HealthCheck),
        )(test)

    return decorated


def _nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": [value]}
    return value


def paths(value: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a JSON document."""
    yield prefix
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for key, item in items:
        yield from paths(item, (*prefix, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of a JSON document with another value at `path`."""
    if not path:
        return new
    first, *rest = path
    if isinstance(value, dict):
        return {k: replaced(v, tuple(rest), new) if k == first else v for k, v in value.items()}
    return [replaced(v, tuple(rest), new) if n == first else v for n, v in enumerate(value)]


def _without(value: Any, path: tuple[Any, ...]) -> Any:
    first, *rest = path
    if rest:
        return replaced(value, (first,), _without(value[first], tuple(rest)))
    if isinstance(value, dict):
        return {k: v for k, v in value.items() if k != first}
    return [v for n, v in enumerate(value) if n != first]


@st.composite
def trees(draw: st.DrawFn, values: list[Any]) -> Any:
    """One of `values` with up to four changes: an odd value, a part of another one, or a gap."""
    value = draw(st.sampled_from(values))
    for _ in range(draw(st.integers(0, 4))):
        path = draw(st.sampled_from(list(paths(value))))
        how = draw(st.sampled_from(["odd", "other", "gap"]))
        if how == "odd":
            value = replaced(value, path, draw(ODD))
        elif how == "gap" and path:
            value = _without(value, path)
        elif how == "other":
            other = draw(st.sampled_from(values))
            part = draw(st.sampled_from(list(paths(other))))
            for key in part:
                other = other[key]
            value = replaced(value, path, other)
    return value


@st.composite
def changed_bytes(draw: st.DrawFn, values: list[bytes]) -> bytes:
    """One of `values` with up to four changes: a byte, a piece more, a piece less, a cut end."""
    data = draw(st.sampled_from(values))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(["byte", "more", "less", "end"]))
        length = draw(st.integers(1, 8))
        if how == "byte":
            data = data[:at] + draw(st.binary(min_size=1, max_size=1)) + data[at + 1 :]
        elif how == "more":
            data = data[:at] + draw(st.binary(max_size=8)) + data[at:]
        elif how == "less":
            data = data[:at] + data[at + length :]
        else:
            data = data[:at]
    return data
