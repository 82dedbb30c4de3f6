"""Messages on a wrong spec name the field, what is wrong and what to do."""

import msgspec
import pytest

from edgeai.api.specs import InvalidSpec, NonEmpty, check_service_name, parse_spec


class Inner(msgspec.Struct):
    name: NonEmpty


class Outer(msgspec.Struct, rename="camel"):
    one_thing: Inner
    items: list[Inner] = []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(None, "spec: has the wrong form", id="no spec"),
        pytest.param(5, "spec: has the wrong form", id="number"),
        pytest.param({}, "spec.oneThing: is missing; set it", id="missing"),
        pytest.param({"oneThing": {}}, "spec.oneThing.name: is missing", id="missing inside"),
        pytest.param({"oneThing": {"name": ""}}, "spec.oneThing.name: has the", id="empty"),
        pytest.param(
            {"oneThing": {"name": "x"}, "items": [{"name": "x"}, {"name": 1}]},
            "spec.items[1].name: has the wrong form (Expected `str`, got `int`); correct it",
            id="wrong type in a list",
        ),
    ],
)
def test_the_message_starts_with_the_path_of_the_field(spec: object, message: str) -> None:
    with pytest.raises(InvalidSpec) as error:
        parse_spec({"spec": spec}, Outer)
    assert str(error.value).startswith(message)


def test_unknown_fields_are_ignored() -> None:
    spec = {"oneThing": {"name": "x", "color": 1}, "more": {}}
    assert parse_spec({"spec": spec}, Outer) == Outer(Inner("x"))


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        pytest.param("a" * 58, "at most 57 characters", id="too long"),
        pytest.param("1digits", "starts with a letter", id="starts with a digit"),
        pytest.param("a.b", "no '.'", id="dot"),
    ],
)
def test_a_name_that_makes_no_service_name_is_refused(name: str, complaint: str) -> None:
    with pytest.raises(InvalidSpec, match=r"metadata\.name") as error:
        check_service_name(name, "-cloud")
    assert complaint in str(error.value)


def test_the_longest_name_that_fits_is_accepted() -> None:
    check_service_name("a" * 57, "-cloud")
