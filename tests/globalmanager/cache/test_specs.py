"""A large spec is decoded once, whatever brings it."""

import gc
import tracemalloc
from collections.abc import Callable

import msgspec
import pytest

from edgeai.api.resources import Object, ResourceType
from edgeai.kube.client import KubeClient
from edgeai.kube.objects import MAX_DEPTH, NotReadable, Unreadable, decode
from globalmanager.cache.specs import LARGE_BYTES, LargeSpecs
from tests.globalmanager.scripted_api import ScriptedApi

TFJOBS = ResourceType("kubeflow.org", "v1", "tfjobs", "TFJob")


def job(*, variables: int = 20_000, version: int = 1, **status: object) -> Object:
    env = [{"name": f"V{number:05}", "value": "x" * 8} for number in range(variables)]
    metadata = {
        "name": "fat",
        "namespace": "default",
        "uid": "u1",
        "resourceVersion": str(version),
        "generation": 1,
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": metadata,
        "spec": {"template": {"spec": {"containers": [{"name": "tensorflow", "env": env}]}}},
        "status": status,
    }


def text(object_: Object) -> bytes:
    return msgspec.json.encode(object_)


def peak_bytes(act: Callable[[], object]) -> int:
    """The memory that `act` takes at most."""
    gc.collect()
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_later_state_of_a_large_job_takes_no_memory_for_its_spec() -> None:
    form, later = LargeSpecs(), text(job(version=2, phase="Running"))
    assert len(later) > 700_000
    first = decode(text(job()), form)
    assert peak_bytes(lambda: decode(later, form)) < 64 * 1024
    assert decode(later, form)["spec"] is first["spec"]


async def test_lists_events_and_answers_share_the_spec(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    client = scripted_client.reading({TFJOBS: LargeSpecs()})
    scripted.lists = [scripted.listing(job(), version=1)]
    scripted.others = [scripted.json(job(version=2))]
    (listed,) = (await client.list(TFJOBS)).items
    answered = await client.replace(TFJOBS, job())
    event = client.read(TFJOBS, text(job(version=3)))
    assert not isinstance(event, Unreadable)
    assert listed["spec"] is answered["spec"] is event["spec"]
    assert event == job(version=3)


def test_an_edit_of_a_large_spec_is_seen() -> None:
    form = LargeSpecs()
    states = [job(version=1), job(variables=19_999, version=2)]
    assert [decode(text(state), form) for state in states] == states


def test_a_spec_that_nothing_uses_is_forgotten() -> None:
    form = LargeSpecs()
    gc.collect()
    tracemalloc.start()
    try:
        for variables in range(4_997, 5_000):
            decode(text(job(variables=variables)), form)
        assert tracemalloc.get_traced_memory()[0] < 64 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("levels", [MAX_DEPTH - 1, MAX_DEPTH])
def test_a_large_spec_has_the_depth_of_any_other(levels: int) -> None:
    deep: Object = {}
    for _ in range(levels - 2):
        deep = {"x": deep}
    object_ = {**job(variables=0), "spec": {"x": deep, "padding": "x" * LARGE_BYTES}}
    form = LargeSpecs()
    if levels < MAX_DEPTH:
        assert [decode(text(object_), form) for _ in range(2)] == [object_, object_]
        return
    for _ in range(2):  # also when the same text comes again
        with pytest.raises(NotReadable, match="nested deeper"):
            decode(text(object_), form)


@pytest.mark.parametrize("spec", [b"null", b"[1]", b'"text"', b'{"a":', b"{}}"])
def test_a_large_object_of_any_form_is_read_as_a_small_one(spec: bytes) -> None:
    metadata = text({"name": "a", "uid": "u", "resourceVersion": "1"})

    def outcome(padding: int) -> object:
        padded = b'{"metadata":%b,"status":"%b","spec":%b}' % (metadata, b"x" * padding, spec)
        try:
            return decode(padded, LargeSpecs())["spec"]
        except NotReadable:
            return NotReadable

    assert outcome(LARGE_BYTES) == outcome(1)
