"""Something that happens after what a test is about: once the engine has dealt with the marker, it
had its chance to deal with what came before.

News of one type come in their order, and so do jobs out of the queue.
"""

import itertools

from tests.globalmanager.cluster import Manager, User
from tests.globalmanager.gadgets import CONFIGMAPS, gadget
from tests.globalmanager.objects import GADGETS
from tests.support.waiting import async_eventually

_NUMBERS = itertools.count(1)


async def make_marker(manager: Manager, user: User) -> str:
    """A Gadget whose name no other has. Returns: its name"""
    name = f"marker-{next(_NUMBERS)}"
    await user.create(GADGETS, gadget(name))
    await manager.wait_for_phase(name)
    return name


async def lose_child(user: User, name: str) -> None:
    """Delete the Gadget's ConfigMap, until the engine has made another one."""
    config = f"{name}-config"
    before = await user.get(CONFIGMAPS, config)
    assert before is not None
    uid = before["metadata"]["uid"]
    await user.delete(CONFIGMAPS, config)

    async def is_another() -> bool:
        found = await user.get(CONFIGMAPS, config)
        return found is not None and found["metadata"]["uid"] != uid

    await async_eventually(f"another {config}", is_another)


async def pass_marker(manager: Manager, user: User) -> None:
    """Until the engine has dealt with all that happened so far to Gadgets and to ConfigMaps."""
    await lose_child(user, await make_marker(manager, user))
