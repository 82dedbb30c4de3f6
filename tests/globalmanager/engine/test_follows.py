"""Children that another controller made: found by its label, proved by the owner reference."""

from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec
import pytest

from edgeai.api.resources import Object, ObjectRef
from globalmanager.engine.settings import EngineSettings
from tests.globalmanager import gadgets
from tests.globalmanager.cluster import FAST, LocalApi, Manager, User, run_manager
from tests.globalmanager.engine.marker import pass_marker
from tests.globalmanager.gadgets import CONFIGMAPS, gadget
from tests.globalmanager.objects import GADGETS
from tests.support.waiting import async_eventually

BEFORE: Final = {"before.test/made-by": "another"}
SELECTOR: Final = "before.test/made-by=another,app.kubernetes.io/managed-by!=edgeai"
KIND = msgspec.structs.replace(gadgets.GADGET, follows={CONFIGMAPS: (SELECTOR,)})


def config(job: Object, *, controller: bool = True, **labels: str) -> Object:
    """The ConfigMap of a gadget as the controller before made it."""
    metadata = job["metadata"]
    owner = {
        "apiVersion": GADGETS.api_version,
        "kind": GADGETS.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": controller,
    }
    return {
        "metadata": {
            "name": f"{metadata['name']}-config",
            "namespace": metadata["namespace"],
            "labels": labels or BEFORE,
            "ownerReferences": [owner],
        },
        "data": {"data": "old"},
    }


@pytest.fixture
async def manager(cluster: LocalApi, user: User) -> AsyncIterator[Manager]:
    settings = EngineSettings(informer=FAST)
    async with run_manager(cluster.kubeconfig, kinds=[KIND], settings=settings) as manager:
        yield manager


async def data(user: User, name: str) -> Any:
    found = await user.get(CONFIGMAPS, f"{name}-config")
    return None if found is None else found["data"]["data"]


async def has(user: User, name: str, value: str) -> None:
    async def check() -> bool:
        return bool(await data(user, name) == value)

    await async_eventually(f"{value} in the child of {name}", check)


async def test_a_child_of_another_controller_is_changed_in_place_and_followed(
    cluster: LocalApi, user: User
) -> None:
    """The child exists before the GlobalManager starts."""
    job = await user.create(GADGETS, gadget("a", data="new"))
    made = await user.create(CONFIGMAPS, config(job))
    settings = EngineSettings(informer=FAST)
    async with run_manager(cluster.kubeconfig, kinds=[KIND], settings=settings) as manager:
        await has(user, "a", "new")
        found = await user.get(CONFIGMAPS, "a-config")
        assert found is not None
        assert found["metadata"]["uid"] == made["metadata"]["uid"]
        assert ("create", "409") not in manager.writes

        ref = ObjectRef(CONFIGMAPS, "default", "a-config")
        await user.client.merge_patch(ref, {"data": {"data": "changed by somebody"}})
        await has(user, "a", "new")

        await user.delete(CONFIGMAPS, "a-config")
        await has(user, "a", "new")


async def test_a_label_without_the_owner_makes_no_child(manager: Manager, user: User) -> None:
    job = await user.create(GADGETS, gadget("a", data="new"))
    await manager.wait_for_phase("a")
    foreign = config(job, controller=False)
    foreign["metadata"]["name"] = "b-config"
    await user.create(CONFIGMAPS, foreign)
    await user.create(GADGETS, gadget("b", data="new"))
    await manager.wait_for_phase("b", "NameConflict")
    assert await data(user, "b") == "old"


async def test_a_child_that_changes_its_label_stays_one_child(manager: Manager, user: User) -> None:
    """The child moves from one informer to the other."""
    await user.create(GADGETS, gadget("a", data="new"))
    await manager.wait_for_phase("a")
    found = await user.get(CONFIGMAPS, "a-config")
    assert found is not None
    ref = ObjectRef(CONFIGMAPS, "default", "a-config")
    labels = {**BEFORE, "app.kubernetes.io/managed-by": "another"}
    await user.client.merge_patch(ref, {"metadata": {"labels": labels}})
    await pass_marker(manager, user)
    await user.client.merge_patch(ref, {"data": {"data": "changed by somebody"}})
    await has(user, "a", "new")
    again = await user.get(CONFIGMAPS, "a-config")
    assert again is not None
    assert again["metadata"]["uid"] == found["metadata"]["uid"]


async def test_no_informer_follows_a_child_without_one_of_the_labels(
    manager: Manager, user: User
) -> None:
    job = await user.create(GADGETS, gadget("a", data="new"))
    await manager.wait_for_phase("a")
    stranger = config(job, other="label")
    stranger["metadata"]["name"] = "stranger"
    await user.create(CONFIGMAPS, stranger)
    await pass_marker(manager, user)
    stores = [informer.store for informer in manager.engine._informers]
    names = {each["metadata"]["name"] for store in stores for each in store.list("default")}
    assert {"a", "a-config"} <= names
    assert "stranger" not in names
