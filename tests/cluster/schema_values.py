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
_NAMES: Final = ("Worker", "Master")
"""The keys of maps; the types of replicas that jobs have."""
_TYPICAL: Final[dict[str, st.SearchStrategy[Any]]] = {
    "boolean": st.booleans(),
    "integer": st.integers(0, 3),
    "number": st.floats(0, 3),
    "string": st.sampled_from(_TEXTS),
}
_NEARLY: Final[dict[str, st.SearchStrategy[Any]]] = {
    "integer": st.sampled_from((*_INTEGERS, *_FLOATS)),
    "date-time": st.sampled_from(_TIMES),
    "pattern": st.sampled_from((*_QUANTITIES, *_FLOATS, *_INTEGERS)),
}


def _one_in(draw: st.DrawFn, number: int) -> bool:
    return draw(st.integers(1, number)) == number


@st.composite
def values(draw: st.DrawFn, schema: Object) -> Any:
    """A value of this schema; of many leaves, one is of another type or out of bounds."""
    if _one_in(draw, 60):
        return draw(_WILD)
    match schema.get("type"):
        case "object":
            return draw(_objects(schema))
        case "array":
            least = schema.get("minItems", 0)
            return draw(st.lists(values(schema["items"]), min_size=least, max_size=max(2, least)))
    return draw(_leaf(schema, nearly=_one_in(draw, 12)))


@st.composite
def _objects(draw: st.DrawFn, schema: Object) -> Object:
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    names = {*required, *draw(_some(tuple(properties), 4))}
    object_ = {name: draw(values(properties[name])) for name in sorted(names)}
    inner = schema.get("additionalProperties")
    if inner is not None:
        object_ |= {name: draw(values(inner)) for name in draw(_some(_NAMES, 2))}
    if _one_in(draw, 40):
        object_["unknown"] = draw(_WILD)
    return object_


def _some(names: tuple[str, ...], most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), max_size=most, unique=True) if names else st.just([])


def _leaf(schema: Object, *, nearly: bool) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("format") == "date-time":
        return _NEARLY["date-time"] if nearly else st.just(_TIMES[0])
    if "pattern" in schema or schema.get("x-kubernetes-int-or-string"):
        return _NEARLY["pattern"] if nearly else st.sampled_from(("1", 1))
    type_ = schema.get("type", "")
    return (_NEARLY if nearly and type_ in _NEARLY else _TYPICAL).get(type_, _WILD)
