"""An unreadable object is reported with its name, the bad field and the remedy."""

import random
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from edgeai.kube.objects import (
    MAX_DEPTH,
    MAX_OBJECT_BYTES,
    NotReadable,
    Unreadable,
    items_of,
    read,
    read_event,
)
from tests.globalmanager.objects import make


def nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


def with_spec(spec: bytes, **metadata: Any) -> bytes:
    """An object as the API server writes it: metadata first."""
    text = msgspec.json.encode(make("x", version=7, metadata=metadata))
    return text[:-1] + b',"spec":' + spec + b"}"


@pytest.mark.parametrize("levels", [1, MAX_DEPTH - 1])
def test_an_object_within_the_bounds_is_read(levels: int) -> None:
    assert not isinstance(read(with_spec(nested(levels))), Unreadable)


def test_managed_fields_are_not_kept() -> None:
    object_ = read(msgspec.json.encode(make("a", metadata={"managedFields": [{"manager": "x"}]})))
    assert object_ == make("a")


def test_brackets_in_text_are_not_nesting() -> None:
    text = '{[\\"' * 500
    object_ = read(with_spec(msgspec.json.encode({"x": text})))
    assert isinstance(object_, dict)
    assert object_["spec"]["x"] == text


@pytest.mark.parametrize("levels", [MAX_DEPTH, 979, 980, 2000, 100_000])
def test_an_object_that_is_too_deep_keeps_its_name(levels: int) -> None:
    found = read(with_spec(b'{"template":{"x":[' + nested(levels) + b"]}}"))
    assert isinstance(found, Unreadable)
    assert (found.namespace, found.name, found.uid) == ("ns", "x", "uid-x")
    assert found.resource_version == "7"
    assert found.problem.startswith("spec.template.x.a")
    assert f"nested deeper than {MAX_DEPTH} levels: make it flatter" in found.problem


def test_deep_managed_fields_do_not_hide_the_name() -> None:
    """The managed fields come before the name, and the JSON library cannot decode them."""
    text = with_spec(b"{}").replace(b'"metadata":{', b'"metadata":{"m":' + nested(5000) + b",", 1)
    found = read(text)
    assert isinstance(found, Unreadable)
    assert (found.name, found.uid) == ("x", "uid-x")
    assert found.problem.startswith("metadata.m.a")


def test_an_object_that_is_too_large_keeps_its_name_after_the_cut() -> None:
    text = with_spec(b'{"x":"' + b'\\"' * MAX_OBJECT_BYTES + b'"}')[: MAX_OBJECT_BYTES + 1]
    found = read(text)
    assert isinstance(found, Unreadable)
    assert (found.namespace, found.name, found.resource_version) == ("ns", "x", "7")
    assert f"larger than {MAX_OBJECT_BYTES} bytes" in found.problem
    assert "make it smaller" in found.problem


ODD: dict[str, Any] = {
    "labels": "odd",
    "annotations": {"a": 1},
    "ownerReferences": ["odd"],
    "generation": "1",
    "deletionTimestamp": 5,
    "uid": 5,
    "namespace": None,
    "resourceVersion": {},
}


@pytest.mark.parametrize("field", ODD)
def test_an_object_with_odd_metadata_is_reported_with_the_field(field: str) -> None:
    found = read(msgspec.json.encode(make("x", metadata={field: ODD[field]})))
    assert isinstance(found, Unreadable)
    assert found.name == "x"
    assert f"$.metadata.{field}" in found.problem


@pytest.mark.parametrize("field", ["name", "uid", "resourceVersion"])
def test_an_object_without_identity_is_unreadable(field: str) -> None:
    object_ = make("x")
    del object_["metadata"][field]
    found = read(msgspec.json.encode(object_))
    assert isinstance(found, Unreadable)
    assert f"`{field}`" in found.problem


UNDECODABLE = {
    "no number": b"1e999",
    "half a character": rb'"\ud800"',
    "no UTF-8": b'"\xff"',
}


@pytest.mark.parametrize("value", UNDECODABLE.values(), ids=UNDECODABLE)
def test_an_object_that_cannot_be_decoded_keeps_its_name(value: bytes) -> None:
    found = read(with_spec(b'{"x":{"y":' + value + b"}}"))
    assert isinstance(found, Unreadable)
    assert found.name == "x"
    assert "cannot be decoded" in found.problem


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"}", b'"', b"{}", b'{"metadata":[]}'])
def test_a_document_that_is_no_object_has_no_name(text: bytes) -> None:
    found = read(text)
    assert isinstance(found, Unreadable)
    assert found.name == ""


def page(*items: bytes) -> bytes:
    listed = b",".join(items)
    return b'{"metadata":{"resourceVersion":"5","continue":"p"},"items":[' + listed + b"]}\n"


async def test_one_item_that_is_too_deep_leaves_the_others_in_the_list() -> None:
    good, bad = with_spec(b'{"x":"]}\\\\"}'), with_spec(nested(5000))
    found, (first, deep, last) = await items_of(page(good, bad, good))
    assert (found.resource_version, found.continue_) == ("5", "p")
    assert first == last == read(good)
    assert isinstance(deep, Unreadable)
    assert deep == read(bad)


@pytest.mark.parametrize("items", [[], [with_spec(b"{}")], [with_spec(b"[]"), with_spec(b"1")]])
async def test_the_items_of_a_page_are_its_objects(items: list[bytes]) -> None:
    found, objects = await items_of(page(*items))
    assert (found.resource_version, objects) == ("5", [read(item) for item in items])


@pytest.mark.parametrize("body", [b"<html>login</html>", b"", b"[1]", b"null", b'{"items":[]}x'])
async def test_an_answer_that_is_no_list_is_not_readable(body: bytes) -> None:
    with pytest.raises(NotReadable):
        await items_of(body)


def test_an_event_of_a_deep_object_keeps_its_type() -> None:
    bad = with_spec(nested(5000))
    event = read_event(b'{"type":"MODIFIED","object":' + bad + b"}")
    assert (event.type, bytes(event.object)) == ("MODIFIED", bad)


def test_an_event_that_was_cut_off_keeps_its_type_and_the_rest() -> None:
    event = read_event(b'{"type":"ADDED","object":{"metadata":{"name":"x","n')
    assert (event.type, bytes(event.object)) == ("ADDED", b'{"metadata":{"name":"x","n')
    found = read(event.object)
    assert isinstance(found, Unreadable)
    assert found.name == "x"


async def test_a_damaged_document_raises_only_not_readable() -> None:
    whole = b'{"type":"ADDED","object":' + with_spec(b'{"x":["{\\"",{}],"y":' + nested(300) + b"}")
    chance = random.Random(1)
    for _ in range(2000):
        start, length = chance.randrange(len(whole)), chance.choice((1, 2, 50, len(whole)))
        damaged = (
            whole[:start] + chance.choice((b"", b'"', b"}", b"[", b"\\")) + whole[start + length :]
        )
        read(damaged)
        with suppress(NotReadable):
            read_event(damaged)
        with suppress(NotReadable):
            await items_of(damaged)


@pytest.mark.parametrize(
    ("api_version", "written_in", "kept"),
    [
        ("kubeflow.org/v1", "kubeflow.org/v1alpha2", "kubeflow.org/v1alpha2"),
        ("kubeflow.org/v1", "kubeflow.org/v1", None),
        ("apps/v1", "apps/v1beta1", None),
        ("storage.k8s.io/v1", "storage.k8s.io/v1beta1", None),
    ],
)
def test_of_managed_fields_only_another_version_of_a_custom_spec_is_kept(
    api_version: str, written_in: str, kept: str | None
) -> None:
    managers = [
        {"apiVersion": "x.test/v9", "fieldsV1": {"f:metadata": {}}},
        {"apiVersion": written_in, "fieldsV1": {"f:spec": {"f:a": {}}}, "manager": "kubectl"},
        {"apiVersion": api_version, "fieldsV1": {"f:spec": {}}, "manager": "later"},
        "garbage",
    ]
    object_ = read(
        msgspec.json.encode(
            make("a", metadata={"managedFields": managers}) | {"apiVersion": api_version}
        )
    )
    assert not isinstance(object_, Unreadable)
    expected = [{"apiVersion": kept, "fieldsV1": {"f:spec": {}}}] if kept else None
    assert object_["metadata"].get("managedFields") == expected
