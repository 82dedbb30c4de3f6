"""A job that the API says is gone gets no child again, however late the watch tells its end."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edgeai.api.resources import Object, ObjectRef
from edgeai.ids import Uid
from edgeai.kube.errors import NotFound
from globalmanager.ha.fence import Fence
from tests.globalmanager.cluster import TOKEN, LocalApi, Manager, User, key_of, run_manager
from tests.globalmanager.engine.late_watch import Created, LateWatch, serve_late_watch
from tests.globalmanager.engine.marker import lose_child, make_marker, pass_marker
from tests.globalmanager.gadgets import CONFIGMAPS, gadget
from tests.globalmanager.objects import GADGETS
from tests.support.clock import AheadClock
from tests.support.kubeconfig import write_kubeconfig
from tests.support.waiting import async_eventually

A = ObjectRef(GADGETS, "default", "a")


@pytest.fixture
async def late(cluster: LocalApi) -> AsyncIterator[LateWatch]:
    async with serve_late_watch(cluster.url, GADGETS.plural) as late:
        yield late


@pytest.fixture
async def late_manager(late: LateWatch, tmp_path: Path) -> AsyncIterator[Manager]:
    """Sees gadgets as late as the test wants, and all else at once."""
    kubeconfig = write_kubeconfig(tmp_path / "late-kubeconfig", late.url, TOKEN)
    async with run_manager(kubeconfig) as manager:
        yield manager


async def make_ready(manager: Manager, user: User, name: str = "a", **spec: str) -> Object:
    made = await user.create(GADGETS, gadget(name, node="n1", **spec))
    await manager.wait_for_phase(name)
    return made


def created_for(late: LateWatch, job: Object) -> list[Created]:
    return [each for each in late.created if each.owner == job["metadata"]["uid"]]


async def test_a_dead_jobs_children_are_not_made_again(
    late: LateWatch, late_manager: Manager, user: User
) -> None:
    made = await make_ready(late_manager, user)
    marker = await make_marker(late_manager, user)
    late.flowing.clear()
    late.told.clear()
    await user.delete(GADGETS, "a")
    await async_eventually(
        "the edge to be told to forget a", lambda: late_manager.edge.forgotten == [key_of("a")]
    )
    await lose_child(user, marker)
    assert late.waiting > 0, "the watch was to be late"
    assert created_for(late, made) == []
    assert await user.get(CONFIGMAPS, "a-config") is None
    late.flowing.set()
    await pass_marker(late_manager, user)
    assert late_manager.engine.jobs.by_uid(made["metadata"]["uid"]) is None
    assert created_for(late, made) == []


async def test_late_news_of_a_dead_job_do_not_bring_it_back(
    late: LateWatch, late_manager: Manager, user: User
) -> None:
    """The watch has its last changes yet to tell when the API says that it is gone."""
    made = await make_ready(late_manager, user)
    late.flowing.clear()
    await user.change_spec("a", data="changed")
    await user.change_spec("a", data="changed again")
    late.told.clear()
    await user.delete(GADGETS, "a")
    await async_eventually(
        "the edge to be told to forget a", lambda: late_manager.edge.forgotten == [key_of("a")]
    )
    seen: set[str] = set()
    store = late_manager.engine._informers.get(GADGETS).store
    store.subscribe(lambda old, new: seen.add((new or old or {})["metadata"]["name"]))
    late.flowing.set()
    marker = await make_marker(late_manager, user)
    assert seen == {marker}
    await lose_child(user, marker)
    assert late.created_after_gone(made["metadata"]["uid"]) == []


async def test_a_job_that_lives_gets_its_deleted_child_again_though_its_watch_is_late(
    late: LateWatch, late_manager: Manager, user: User
) -> None:
    await make_ready(late_manager, user)
    late.flowing.clear()
    await lose_child(user, "a")
    assert len(late.created) == 2


async def test_a_job_that_is_being_deleted_gets_no_child_again_though_its_watch_is_late(
    late: LateWatch, late_manager: Manager, user: User
) -> None:
    """As with `kubectl delete --cascade=foreground`: the children go first."""
    held = {"name": "a", "namespace": "default", "finalizers": ["test.edgeai.io/held"]}
    made = await user.create(GADGETS, {**gadget("a"), "metadata": held})
    await late_manager.wait_for_phase("a")
    marker = await make_marker(late_manager, user)
    late.flowing.clear()
    late.told.clear()
    await user.delete(GADGETS, "a")
    await user.delete(CONFIGMAPS, "a-config")
    await async_eventually(
        "a question to the API about the job", lambda: ("get", "200") in late_manager.requests
    )
    await lose_child(user, marker)
    assert created_for(late, made) == []


async def test_the_first_children_of_a_new_job_cost_no_question(
    late: LateWatch, late_manager: Manager, user: User
) -> None:
    await make_ready(late_manager, user)
    assert ("get", "200") not in late_manager.requests


async def test_a_dead_jobs_beginning_that_is_told_late_makes_nothing(
    late: LateWatch, tmp_path: Path, user: User
) -> None:
    """By the clock the job is a minute old when the watch tells of it, so the API is asked."""
    kubeconfig = write_kubeconfig(tmp_path / "late-kubeconfig", late.url, TOKEN)
    async with run_manager(kubeconfig, clock=AheadClock(60.0)) as manager:
        await manager.engine.initially_assigned.wait()
        late.flowing.clear()
        await user.create(GADGETS, gadget("a", node="n1"))
        await user.delete(GADGETS, "a")
        await async_eventually("a line that waits", lambda: late.waiting == 1)
        late.one_by_one = True
        late.flowing.set()
        await async_eventually(
            "the edge to be told to forget a", lambda: manager.edge.forgotten == [key_of("a")]
        )
        assert late.waiting == 2, "the watch has told of the beginning only"
        assert late.created == []


async def test_who_takes_a_dead_jobs_name_gets_children_and_the_dead_one_none(
    late: LateWatch, late_manager: Manager, user: User
) -> None:
    old = await make_ready(late_manager, user, data="old")
    late.flowing.clear()
    late.told.clear()
    await user.delete(GADGETS, "a")
    new = await user.create(GADGETS, gadget("a", node="n1", data="new"))
    uid = new["metadata"]["uid"]
    await async_eventually(
        "a child of the new job", lambda: any(each.owner == uid for each in late.created)
    )
    await late_manager.wait_for_phase("a")
    assert late.waiting > 0, "the watch was to be late"
    late.flowing.set()
    await pass_marker(late_manager, user)
    assert created_for(late, old) == []
    assert len(created_for(late, new)) == 1
    config = await user.get(CONFIGMAPS, "a-config")
    assert config is not None
    assert config["data"] == {"data": "new"}
    assert late_manager.engine.jobs.by_uid(uid) is not None


async def test_what_an_edge_reports_of_a_dead_job_withdraws_it(
    late: LateWatch, cluster: LocalApi, tmp_path: Path, user: User
) -> None:
    """On a follower, too: it does not plan, but its edges must not keep what is gone."""
    kubeconfig = write_kubeconfig(tmp_path / "follower-kubeconfig", late.url, TOKEN)
    async with run_manager(kubeconfig, fence=Fence()) as follower:
        made = await user.create(GADGETS, gadget("a", node="n1"))
        await async_eventually("an assignment of a", lambda: follower.edge.nodes_of("a") == ["n1"])
        late.flowing.clear()
        await user.delete(GADGETS, "a")
        uid = Uid(made["metadata"]["uid"])
        with pytest.raises(NotFound):
            await follower.engine.writers.status_writer.update(
                A, uid, lambda _: {"workers": {"w": 1}}
            )
        await async_eventually(
            "the edge to be told to forget a", lambda: follower.edge.forgotten == [key_of("a")]
        )


async def test_jobs_that_come_and_go_leave_nothing_behind(
    late: LateWatch, late_manager: Manager, user: User
) -> None:
    """A hundred at once, the watch late by turns; whoever was said to be gone gets nothing."""
    uids: list[str] = []
    for number in range(100):
        made = await user.create(GADGETS, gadget(f"g{number}", node="n1"))
        uids.append(made["metadata"]["uid"])
        if number % 10 == 5:
            late.flowing.clear()
        if number % 10 == 9:
            late.flowing.set()
        if number >= 10:
            await user.delete(GADGETS, f"g{number - 10}")
    late.flowing.set()
    for number in range(90, 100):
        await user.delete(GADGETS, f"g{number}")
    await async_eventually(
        "the end of every assignment", lambda: len(late_manager.edge.desired) == 0
    )

    async def nothing_is_left() -> bool:
        return not (await user.client.list(CONFIGMAPS)).items

    await async_eventually("the deletion of every ConfigMap", nothing_is_left)
    for uid in uids:
        assert late.created_after_gone(uid) == []
        assert len([each for each in late.created if each.owner == uid]) <= 1
