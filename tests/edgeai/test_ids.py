"""Task keys: what is accepted and what can never pass."""

import pytest

from edgeai.errors import InvalidName
from edgeai.ids import TaskRef, is_subdomain, parse_task_key

REF = TaskRef("jointinferenceservices", "edgeai.io", "default", "digits")


def test_key_round_trips() -> None:
    assert parse_task_key(REF.key) == REF


@pytest.mark.parametrize(
    "key",
    [
        "",
        "models.edgeai.io",
        "models.edgeai.io/default",
        "models/default/x",  # no group
        "models.edgeai.io/default/..",
        "models.edgeai.io/default/a/b",
        "models.edgeai.io/default/a\x00",
        "models.edgeai.io/default/a\n",
        "models.edgeai.io/default/A",
        "models.edgeai.io/default/" + "a" * 254,
    ],
)
def test_bad_key_is_refused_by_name(key: str) -> None:
    with pytest.raises(InvalidName, match="task key"):
        parse_task_key(key)


@pytest.mark.parametrize(("name", "ok"), [("a.b-c", True), ("-a", False), ("a..b", False)])
def test_subdomain(name: str, ok: bool) -> None:
    assert is_subdomain(name) is ok
