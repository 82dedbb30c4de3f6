"""The engine serves the API groups that are installed, and others once they are."""

import asyncio
from pathlib import Path

import msgspec
from aiohttp import web

from edgeai.api.resources import SECRETS, Object, ResourceType
from edgeai.kube.remedies import UPGRADE
from globalmanager.contract import Kind, UpdateRule
from tests.globalmanager.cluster import CRDS, LocalApi, User, run_manager
from tests.globalmanager.gadgets import CONFIGMAPS, GADGET, PARTS, crd_of, gadget, with_types
from tests.globalmanager.objects import GADGETS
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.kubeconfig import write_kubeconfig
from tests.support.waiting import async_eventually

OTHERS = ResourceType("other.edgeai.io", "v1", "gadgets", "Gadget")
BOTH: Kind = with_types(GADGET, GADGETS, OTHERS)
OTHER: Kind = msgspec.structs.replace(with_types(GADGET, OTHERS), owns={SECRETS: UpdateRule.KEEP})


def other(name: str) -> Object:
    return {**gadget(name), "apiVersion": OTHERS.api_version}


async def test_a_group_without_definitions_is_served_once_they_appear(
    cluster: LocalApi, user: User
) -> None:
    await user.create(GADGETS, gadget("a"))
    async with run_manager(cluster.kubeconfig, kinds=(BOTH,)) as manager:
        await manager.wait_for_phase("a")
        await async_eventually("readiness", lambda: manager.engine.health().ready)
        await async_eventually("the edge's turn", manager.engine.initially_assigned.is_set)
        (reason,) = manager.engine.health().reasons
        assert "other.edgeai.io is not served" in reason
        assert "value groups: other.edgeai.io" in reason
        await user.create(CRDS, crd_of(OTHERS))
        await async_eventually("no reason", lambda: not manager.engine.health().reasons)
        await user.create(OTHERS, other("b"))
        await async_eventually("the other's child", lambda: user.get(CONFIGMAPS, "b-config"))


async def test_without_any_group_it_is_not_ready(bare_cluster: LocalApi) -> None:
    async with run_manager(bare_cluster.kubeconfig, kinds=(BOTH,)) as manager:

        def check() -> bool:
            health = manager.engine.health()
            told = [each for each in health.reasons if UPGRADE in each]
            assert len(told) == 2, health.reasons
            assert not health.ready
            return True

        await async_eventually("a reason for both", check)


async def test_a_group_without_rights_waits_for_them(scripted: ScriptedApi, tmp_path: Path) -> None:
    """Its definitions may be another operator's. Nothing is asked for about its children."""
    is_granted = asyncio.Event()

    async def listing(request: web.Request) -> web.StreamResponse:
        if "/other.edgeai.io/" in request.path and not is_granted.is_set():
            return await scripted.failure(403, "Forbidden", 'u cannot list "gadgets"')(request)
        return await scripted.listing(version=5)(request)

    scripted.lists = [listing]
    scripted.watches = [scripted.stream(then="hang")]
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)

    def asked_for_secrets() -> bool:
        return any(each.path.endswith("/secrets") for each in scripted.paths("list"))

    async with run_manager(path, kinds=(GADGET, OTHER)) as manager:
        await async_eventually("readiness", lambda: manager.engine.health().ready)
        await async_eventually("the edge's turn", manager.engine.initially_assigned.is_set)
        (reason,) = manager.engine.health().reasons
        assert "other.edgeai.io is not served: its rights are not granted" in reason
        assert "value groups" in reason
        assert 'cannot list "gadgets"' in reason
        assert not asked_for_secrets()
        is_granted.set()
        await async_eventually("no reason", lambda: not manager.engine.health().reasons)
        assert asked_for_secrets()


async def test_a_type_without_rights_in_a_group_that_is_served_is_a_fault(
    scripted: ScriptedApi, tmp_path: Path
) -> None:
    """Its jobs are there and unknown, so no edge may be told what it is to hold."""
    parts = with_types(GADGET, PARTS)

    async def listing(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/parts"):
            return await scripted.failure(403, "Forbidden", 'u cannot list "parts"')(request)
        return await scripted.listing(version=5)(request)

    scripted.lists = [listing]
    scripted.watches = [scripted.stream(then="hang")]
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    async with run_manager(path, kinds=(GADGET, parts)) as manager:
        await async_eventually(
            "20 lists", lambda: sum("/parts" in each.path for each in scripted.paths("list")) >= 20
        )
        assert not manager.engine.health().ready
        assert not manager.engine.initially_assigned.is_set()
        assert 'cannot list "parts"' in manager.engine.health().reasons[0]
