"""Values that fit a structural schema, and values that nearly do, for hypothesis."""

from typing import Any, Final

from hypothesis import strategies as st

from edgeai.api.resources import Object

_INTEGERS: Final = (2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**53, 2**63 - 1, 2**63, 10**30, -1)
_FLOATS: Final = (1.0, -0.0, 0.5, 1e15, 1e21, 1e300)
_TEXTS: Final = ("", "a", "0", "true", "80%", "ssh", "é", "\n")
_QUANTITIES: Final = (
    *("1", "100m", "0.5", ".5", "1.", "+1", "-1Ki", "1E", "1e3", "1E3", "1e-3", "0.1n", "1e99"),
    *("12345678901234567890", ".", "1.5.5", "1gi", "1K", "1kB", "1e", "1e1.5", "1e99999999999"),
    *("", "0x1", "1 Gi", "1Gi\n"),
)
_TIMES: Final = (
    *("2026-01-01T00:00:00Z", "0001-01-01T00:00:00-00:00", "2026-01-01T23:59:59.1234567890+23:59"),
    *("2026-01-01t00:00:00Z", "2026-01-01T00:00:00z", "2026-01-01T00:00:00", "20260101T000000Z"),
    *("2026-01-01T00:00:00+99:99", "2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00:5Z"),
    *("2026-02-30T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:00:60Z"),
    *("2026-01-01T00:00:00ZT", "2026-01-01T00:00:00Z\n", "2026-01-01 00:00:00Z", "0", ""),
)
_WILD: Final = st.sampled_from(
    (None, True, 0, *_INTEGERS, *_FLOATS, *_TEXTS, [], {}, [None], {"a": None}, {"a": 1}, ["a"])
)
_NAMES: Final = st.sampled_from(("Worker", "Master"))
"""The keys of maps; the types of replicas that jobs have."""
_TYPICAL: Final[dict[str, st.SearchStrategy[Any]]] = {
    "boolean": st.booleans(),
    "integer": st.integers(0, 3),
    "number": st.floats(0, 3),
    "string": st.sampled_from(_TEXTS),
}
_INT_OR_STRING: Final = st.sampled_from(("1", 1))
_NEARLY: Final[dict[str, st.SearchStrategy[Any]]] = {
    "integer": st.sampled_from((*_INTEGERS, *_FLOATS)),
    "date-time": st.sampled_from(_TIMES),
    "pattern": st.sampled_from((*_QUANTITIES, *_FLOATS, *_INTEGERS)),
}


def values(schema: Object) -> st.SearchStrategy[Any]:
    """A value of this schema; of many leaves, one is of another type or out of bounds."""
    return _one_in(60, _WILD, _typical(schema))


def _typical(schema: Object) -> st.SearchStrategy[Any]:
    match schema.get("type"):
        case "object":
            return _object(schema)
        case "array":
            least = schema.get("minItems", 0)
            return st.lists(values(schema["items"]), min_size=least, max_size=max(2, least))
    return _one_in(12, _leaf(schema, nearly=True), _leaf(schema, nearly=False))


def _object(schema: Object) -> st.SearchStrategy[Object]:
    # Built once for each schema, since hypothesis takes longer to build a strategy than to draw.
    properties = {name: values(inner) for name, inner in schema.get("properties", {}).items()}
    inner = schema.get("additionalProperties")
    return _fields(
        properties,
        frozenset(schema.get("required", ())),
        _some(tuple(properties), 4),
        st.just({}) if inner is None else st.dictionaries(_NAMES, values(inner), max_size=2),
    )


@st.composite
def _fields(
    draw: st.DrawFn,
    properties: dict[str, st.SearchStrategy[Any]],
    required: frozenset[str],
    optional: st.SearchStrategy[list[str]],
    others: st.SearchStrategy[Object],
) -> Object:
    object_ = {name: draw(properties[name]) for name in sorted(required.union(draw(optional)))}
    return {**object_, **draw(others), **draw(_UNKNOWN)}


@st.composite
def _choice(
    draw: st.DrawFn,
    is_rare: st.SearchStrategy[bool],
    rare: st.SearchStrategy[Any],
    usual: st.SearchStrategy[Any],
) -> Any:
    return draw(rare if draw(is_rare) else usual)


def _one_in(
    number: int, rare: st.SearchStrategy[Any], usual: st.SearchStrategy[Any]
) -> st.SearchStrategy[Any]:
    return _choice(st.sampled_from([False] * (number - 1) + [True]), rare, usual)


_UNKNOWN: Final = _one_in(40, st.fixed_dictionaries({"unknown": _WILD}), st.just({}))


def _some(names: tuple[str, ...], most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), max_size=most, unique=True) if names else st.just([])


def _leaf(schema: Object, *, nearly: bool) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("format") == "date-time":
        return _NEARLY["date-time"] if nearly else st.just(_TIMES[0])
    if "pattern" in schema or schema.get("x-kubernetes-int-or-string"):
        return _NEARLY["pattern"] if nearly else _INT_OR_STRING
    type_ = schema.get("type", "")
    return (_NEARLY if nearly and type_ in _NEARLY else _TYPICAL).get(type_, _WILD)
