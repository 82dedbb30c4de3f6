"""An engine that does not lead: it knows all that the leader knows, and writes what edges say."""

import math
from datetime import datetime

import msgspec
import pytest

from edgeai.api.resources import ObjectRef
from edgeai.ids import Uid
from globalmanager.contract import Event, Observed, Plan, Severity
from globalmanager.ha.elector import LEASES
from globalmanager.ha.fence import Fence
from tests.globalmanager.cluster import LocalApi, User, run_manager
from tests.globalmanager.gadgets import CONFIGMAPS, GADGET, gadget, plan
from tests.globalmanager.objects import GADGETS
from tests.support.waiting import async_eventually


async def test_it_writes_nothing_but_knows_what_each_node_must_hold(
    cluster: LocalApi, user: User
) -> None:
    await user.create(GADGETS, gadget("a", node="n1", data="x"))
    async with run_manager(cluster.kubeconfig, fence=Fence()) as follower:
        await async_eventually(
            "follower.engine.initially_assigned.is_set",
            follower.engine.initially_assigned.is_set,
        )
        await user.create(GADGETS, gadget("b", node="n1", data="x"))
        await async_eventually("follower.edge.nodes_of('b')", lambda: follower.edge.nodes_of("b"))
        assert follower.edge.nodes_of("a") == ["n1"]
        assert follower.engine.health().ready
        assert follower.writes == []


async def test_who_begins_to_lead_does_what_was_left_undone(cluster: LocalApi, user: User) -> None:
    await user.create(GADGETS, gadget("a", node="n1", data="x"))
    fence = Fence()
    async with run_manager(cluster.kubeconfig, fence=fence) as manager:
        await async_eventually("manager.edge.nodes_of('a')", lambda: manager.edge.nodes_of("a"))
        fence.open_until(math.inf)
        manager.engine.leadership_changed(True)
        await manager.wait_for_phase("a")


async def test_who_was_deposed_writes_nothing_more_and_is_ready_to_lead_again(
    cluster: LocalApi, user: User
) -> None:
    fence = Fence()
    fence.open_until(math.inf)
    async with run_manager(cluster.kubeconfig, fence=fence) as manager:
        await user.create(GADGETS, gadget("a", node="n1", data="x"))
        # The child, the status and two Events.
        await async_eventually(
            "sorted(c for _, c in manager.writes) == ['200', '201', '201', '201']",
            lambda: sorted(c for _, c in manager.writes) == ["200", "201", "201", "201"],
        )
        fence.close()
        written = len(manager.writes)
        await user.delete(CONFIGMAPS, "a-config")
        await user.change_spec("a", node="n2")
        await async_eventually(
            "manager.edge.nodes_of('a') == ['n2']", lambda: manager.edge.nodes_of("a") == ["n2"]
        )
        assert manager.writes[written:] == []
        fence.open_until(math.inf)
        manager.engine.leadership_changed(True)
        await async_eventually(
            "len(manager.writes) > written", lambda: len(manager.writes) > written
        )


@pytest.mark.parametrize("creates", [True, False], ids=["a child first", "a status alone"])
async def test_of_a_plan_that_outlasts_the_reign_nothing_is_sent(
    cluster: LocalApi, user: User, creates: bool
) -> None:
    """Neither child nor status: a successor plans already."""
    fence = Fence()
    fence.open_until(math.inf)

    def plan_until_deposed(observed: Observed, now: datetime) -> Plan:
        fence.close()
        made = plan(observed, now)
        return made if creates else msgspec.structs.replace(made, stages=())

    await user.create(GADGETS, gadget("a", node="n1", data="x"))
    kind = msgspec.structs.replace(GADGET, plan=plan_until_deposed)
    async with run_manager(cluster.kubeconfig, kinds=[kind], fence=fence) as manager:
        deposed = {"kind": GADGET.definition.name, "result": "deposed"}
        of = manager.registry.get_sample_value
        await async_eventually(
            "manager.writes or of('edgeai_reconciles_total', deposed)",
            lambda: manager.writes or of("edgeai_reconciles_total", deposed),
        )
        assert manager.writes == []


async def test_an_event_of_a_deposed_leader_is_dropped(cluster: LocalApi, user: User) -> None:
    async with run_manager(cluster.kubeconfig, fence=Fence()) as follower:
        about = await user.create(GADGETS, gadget("a", node="n1"))
        follower.engine.writers.recorder.record(about, Event(Severity.WARNING, "Reason", "words"))
        name = "edgeai_events_dropped_total"
        await async_eventually(
            "follower.registry.get_sample_value(name)",
            lambda: follower.registry.get_sample_value(name),
        )
        assert follower.writes == []


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
async def test_what_an_edge_reports_is_written_by_the_replica_that_serves_it(
    cluster: LocalApi, user: User, leads: bool
) -> None:
    fence = Fence()
    fence.open_until(math.inf if leads else -math.inf)
    made = await user.create(GADGETS, gadget("a", node="n1"))
    async with run_manager(cluster.kubeconfig, fence=fence) as manager:
        await async_eventually("manager.edge.nodes_of('a')", lambda: manager.edge.nodes_of("a"))
        report = {"workers": {"w": {"status": "running"}}}
        ref, uid = ObjectRef(GADGETS, "default", "a"), Uid(made["metadata"]["uid"])
        await manager.engine.writers.status_writer.update(ref, uid, lambda _status: report)
        stored = await user.get(GADGETS, "a")
        assert stored is not None
        assert stored["status"]["workers"] == report["workers"]
        assert await user.get(LEASES, "edgeai-globalmanager") is None
