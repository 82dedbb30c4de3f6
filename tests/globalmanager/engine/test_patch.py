"""A plan can change single fields of a child that it otherwise never touches."""

from collections.abc import AsyncIterator
from datetime import datetime

import msgspec
import pytest

from edgeai.api.resources import Object, ObjectRef
from globalmanager.contract import Observed, Patch, Plan
from tests.globalmanager import gadgets
from tests.globalmanager.cluster import LocalApi, Manager, User, run_manager
from tests.globalmanager.gadgets import CONFIGMAPS, gadget
from tests.globalmanager.objects import GADGETS
from tests.support.waiting import async_eventually

MARKS = (MARK, LATE) = ("test.edgeai.io/size", "test.edgeai.io/late")


def plan(observed: Observed, now: datetime) -> Plan:
    """A gadget's. The annotation of the ConfigMap follows spec.node, and the data never change."""
    made = gadgets.plan(observed, now)
    if not observed.children:
        return made
    ((ref, child),) = observed.children.items()
    wanted = {MARK: observed.spec.node}
    known = child["metadata"].get("annotations") or {}
    marks = (
        ()
        if known.get(MARK) == wanted[MARK]
        else (Patch(ref, {"metadata": {"annotations": wanted}}),)
    )
    return msgspec.structs.replace(made, stages=(marks,))


KIND = msgspec.structs.replace(gadgets.GADGET, plan=plan, patches=frozenset({CONFIGMAPS}))


@pytest.fixture
async def manager(cluster: LocalApi) -> AsyncIterator[Manager]:
    async with run_manager(cluster.kubeconfig, kinds=[KIND]) as manager:
        yield manager


async def config_with(user: User, expected: dict[str, str]) -> Object:
    async def check() -> Object:
        config = await user.get(CONFIGMAPS, "g-config")
        assert config is not None
        found = config["metadata"].get("annotations") or {}
        assert expected.items() <= found.items(), f"{found}"
        return config

    config: Object = await async_eventually(f"{expected}", check)
    return config


async def test_annotations_are_set_and_others_stay(user: User, manager: Manager) -> None:
    await user.create(GADGETS, gadget("g", node="one", data="x"))
    before = await config_with(user, {MARK: "one"})
    ref = ObjectRef(CONFIGMAPS, "default", "g-config")
    await user.client.merge_patch(ref, {"metadata": {"annotations": {"theirs": "1"}}})
    await user.change_spec("g", node="two")
    after = await config_with(user, {MARK: "two", "theirs": "1"})
    assert after["data"] == before["data"]
    assert after["metadata"]["uid"] == before["metadata"]["uid"]


async def test_an_annotation_that_is_there_is_not_written_again(
    user: User, manager: Manager
) -> None:
    await user.create(GADGETS, gadget("g", node="one", data="x"))
    await config_with(user, {MARK: "one"})
    # the child, its annotation, the status and two Events
    await async_eventually("five writes", lambda: len(manager.writes) == 5)
    planned = manager.reconciles
    await user.client.merge_patch(
        ObjectRef(CONFIGMAPS, "default", "g-config"),
        {"metadata": {"annotations": {"theirs": "1"}}},
    )
    await async_eventually("another plan", lambda: manager.reconciles > planned)
    assert len(manager.writes) == 5


def plan_of_two_patches(observed: Observed, now: datetime) -> Plan:
    """The second one meets an object that has changed since it was planned."""
    made = gadgets.plan(observed, now)
    for ref, child in observed.children.items():
        if MARK not in (child["metadata"].get("annotations") or {}):
            patches = (Patch(ref, {"metadata": {"annotations": {name: "1"}}}) for name in MARKS)
            return msgspec.structs.replace(made, stages=tuple((patch,) for patch in patches))
    return made


async def test_an_object_that_has_changed_since_the_plan_is_planned_again(
    cluster: LocalApi, user: User
) -> None:
    kind = msgspec.structs.replace(KIND, plan=plan_of_two_patches)
    async with run_manager(cluster.kubeconfig, kinds=[kind]) as manager:
        await user.create(GADGETS, gadget("g", node="one", data="x"))
        await config_with(user, {MARK: "1"})
        await async_eventually("a conflict", lambda: ("patch", "409") in manager.writes)
        await manager.wait_for_phase("g")
        config = await user.get(CONFIGMAPS, "g-config")
    assert config is not None
    assert LATE not in config["metadata"]["annotations"]
