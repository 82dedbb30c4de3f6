"""The client against a real API: what it writes, what it waits for, what it survives."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgeai.api.model import ModelSpec
from edgeai.api.resources import DEPLOYMENTS, NODES, Object, ObjectRef
from edgeai.client import AsyncClient, Event, JointInferenceService, Model, ObjectGone, WaitTimeout
from edgeai.client.changes import Change, follow
from edgeai.client.errors import InvalidObject
from edgeai.client.logs import LogLine
from edgeai.kube import errors
from edgeai.kube.client import KubeClient
from edgeai.kube.user import UserClient
from edgeai.localcluster.objects import errors as refusals
from edgeai.localcluster.objects.containers import LogQuery
from tests.edgeai.client.conftest import add_pod, condition, tell
from tests.globalmanager.cluster import LocalApi
from tests.globalmanager.scripted_api import serve_scripted
from tests.support.kubeconfig import write_kubeconfig

MODEL = Model.of("small", ModelSpec(url="/models/small.npz"))


async def test_an_object_is_made_changed_read_listed_and_deleted(client: AsyncClient) -> None:
    made = await client.apply(MODEL)
    changed = await client.apply(Model.of("small", ModelSpec(url="/models/b.npz", format="npz")))
    assert (made.namespace, made.uid) == ("default", changed.uid)
    found = await client.get(Model, "small")
    assert (found.spec.url, found.spec.format) == ("/models/b.npz", "npz")
    assert [each.name for each in await client.list(Model)] == ["small"]
    assert await client.list(Model, namespace="other") == []
    assert await client.list(Model, group="sedna.io") == []
    await client.delete(found)
    with pytest.raises(errors.NotFound):
        await client.get(Model, "small")


async def test_what_others_have_written_stays(client: AsyncClient) -> None:
    made = await client.apply(MODEL)
    theirs = {"metadata": {"labels": {"team": "a"}}, "spec": {"format": "npz"}}
    await client.kube.merge_patch(made.ref, theirs)
    again = await client.apply(MODEL)
    assert (again.spec.format, again.metadata["labels"]) == ("npz", {"team": "a"})


async def test_an_object_that_was_read_can_be_applied(client: AsyncClient) -> None:
    await client.apply(MODEL)
    again = await client.apply(await client.get(Model, "small"))
    assert again.spec == MODEL.spec


async def test_only_the_object_that_is_meant_is_deleted(client: AsyncClient) -> None:
    old = await client.apply(MODEL)
    await client.delete(old)
    await client.apply(MODEL)
    with pytest.raises(errors.Conflict):
        await client.delete(old)
    assert await client.get(Model, "small")


async def test_a_wait_ends_when_the_condition_is_so(client: AsyncClient) -> None:
    made = await client.apply(MODEL)
    waiting = asyncio.create_task(client.wait(made, "Accepted"))
    await tell(client, made.ref, condition("Accepted", "True", "Valid"))
    assert (await waiting).status.conditions[0].type == "Accepted"
    assert (await client.wait(made, "ended")).uid == made.uid
    assert (await client.wait(made, lambda found: found.spec.url.endswith("npz"))).uid == made.uid


async def test_a_wait_says_what_the_object_waits_for(client: AsyncClient) -> None:
    made = await client.apply(MODEL)
    with pytest.raises(WaitTimeout, match=r"models.edgeai.io default/small: .* `edgeai doctor`"):
        await client.wait(made, "Accepted", timeout_s=0.2)
    why = "spec.url: is no URL\x1b[31m; correct it"
    await tell(client, made.ref, condition("Accepted", "False", "InvalidSpec", why))
    with pytest.raises(WaitTimeout) as raised:
        await client.wait(made, "Accepted", timeout_s=0.2)
    assert "within 0.2 s: spec.url: is no URL[31m; correct it" in str(raised.value)


async def test_a_wait_ends_with_the_object(client: AsyncClient) -> None:
    made = await client.apply(MODEL)
    waiting = asyncio.create_task(client.wait(made, "Accepted"))
    gone = asyncio.create_task(client.wait(made, "deleted"))
    await asyncio.sleep(0)
    await client.delete(made)
    with pytest.raises(ObjectGone):
        await waiting
    assert (await gone).uid == made.uid


async def test_a_wait_for_the_end_of_what_is_gone_ends_at_once(client: AsyncClient) -> None:
    old = await client.apply(MODEL)
    await client.delete(old)
    assert (await client.wait(old, "deleted")).uid == old.uid
    with pytest.raises(ObjectGone, match="and is gone"):
        await client.wait(old, "Accepted")
    await client.apply(MODEL)
    assert (await client.wait(old, "deleted")).uid == old.uid


async def test_a_wait_never_takes_another_object_for_the_one_that_is_meant(
    client: AsyncClient,
) -> None:
    old = await client.apply(MODEL)
    await client.delete(old)
    new = await client.apply(MODEL)
    await tell(client, new.ref, condition("Accepted", "True", "Valid"))
    with pytest.raises(ObjectGone, match="created again"):
        await client.wait(old, "Accepted")


@pytest.mark.parametrize("text", ["", "A=b", "=True", "a b"])
async def test_a_condition_that_is_none_is_refused(client: AsyncClient, text: str) -> None:
    with pytest.raises(InvalidObject, match="condition"):
        await client.wait(await client.apply(MODEL), text)


# ---- watch ---------------------------------------------------------------------------------------


async def test_a_watch_goes_on_after_an_outage_and_tells_each_change_once(
    cluster: LocalApi, client: AsyncClient
) -> None:
    made = await client.apply(MODEL)
    async with aclosing(client.watch(Model)) as events:
        assert told(await anext(events)) == ("ADDED", "small")
        await client.apply(Model.of("other", ModelSpec(url="/b")))
        assert told(await anext(events)) == ("ADDED", "other")
        await cluster.stop()
        await cluster.start()
        await tell(client, made.ref, condition("Accepted", "True", "Valid"))
        event = await anext(events)
        assert told(event) == ("MODIFIED", "small")
        assert event.object.status.conditions[0].reason == "Valid"
        await client.delete(event.object)
        assert told(await anext(events)) == ("DELETED", "small")


def told(event: Event[Any]) -> tuple[str, str]:
    return (event.type, event.object.name)


def node(name: str, version: int, uid: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version)}}


GONE = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}


async def changes_of(
    tmp_path: Path, lists: list[Any], watches: list[Any], *, number: int = 5
) -> list[Change]:
    """What a follower tells until that number of changes, of an API that gives these answers.

    Args: watches: (events, what then), or the code of a refusal
    """
    found: list[Change] = []
    async with serve_scripted() as api:
        api.lists = [api.listing(*items, version=version) for version, items in lists]
        api.watches = [
            api.failure(each, "Refused")
            if isinstance(each, int)
            else api.stream(*each[0], then=each[1])
            for each in watches
        ]
        write_kubeconfig(tmp_path / "config", api.url, "t")
        async with (
            await KubeClient.from_kubeconfig(tmp_path / "config") as kube,
            aclosing(follow(kube, ObjectRef(NODES, "", ""))) as changes,
        ):
            async for change in changes:
                found.append(change)
                if len(found) == number:
                    break
    return found


async def test_after_410_a_list_tells_what_has_changed_meanwhile(tmp_path: Path) -> None:
    lists = [
        (3, [node("a", 1), node("b", 2), node("c", 3)]),
        (9, [node("a", 1), node("c", 8, "2")]),
    ]
    found = await changes_of(tmp_path, lists, [([GONE], "end"), ([], "hang")])
    names = [(each.type, each.object["metadata"]["name"]) for each in found[3:]]
    assert names == [("DELETED", "b"), ("DELETED", "c")]  # c is another one now


async def test_what_cannot_be_read_any_more_is_not_gone(tmp_path: Path) -> None:
    deep: Any = {}
    for _ in range(200):
        deep = {"a": deep}
    lists = [(3, [node("a", 1), node("b", 2)]), (9, [{**node("a", 7), "spec": deep}])]
    found = await changes_of(tmp_path, lists, [([GONE], "end"), ([], "hang")], number=3)
    assert [(each.type, each.object["metadata"]["name"]) for each in found[2:]] == [
        ("DELETED", "b")
    ]


async def test_after_an_error_of_the_server_a_list_tells_what_has_changed(tmp_path: Path) -> None:
    lists = [(3, [node("a", 1)]), (9, [node("a", 8)])]
    found = await changes_of(tmp_path, lists, [500, ([], "hang")], number=2)
    assert [each.type for each in found] == ["ADDED", "MODIFIED"]


async def test_a_cut_watch_goes_on_where_it_was(tmp_path: Path) -> None:
    lists = [(3, [node("a", 1), node("b", 2), node("c", 3)])]
    first = {"type": "MODIFIED", "object": node("a", 4)}
    second = {"type": "DELETED", "object": node("b", 5)}
    found = await changes_of(tmp_path, lists, [([first], "cut"), ([second], "cut"), ([], "hang")])
    words = [(each.type, each.object["metadata"]["name"]) for each in found[3:]]
    assert words == [("MODIFIED", "a"), ("DELETED", "b")]


async def test_a_token_that_has_ended_is_taken_anew_once(tmp_path: Path) -> None:
    lists = [(1, [node("a", 1)])]
    event = {"type": "MODIFIED", "object": node("a", 4)}
    first = await changes_of(tmp_path, lists, [401, ([event], "end"), ([], "hang")], number=2)
    assert [each.type for each in first] == ["ADDED", "MODIFIED"]
    with pytest.raises(errors.Unauthorized):
        await changes_of(tmp_path, lists, [401, 401], number=2)


@pytest.mark.parametrize("code", [403, 404])
async def test_a_watch_that_is_refused_is_an_error(tmp_path: Path, code: int) -> None:
    with pytest.raises(errors.ApiError):
        await changes_of(tmp_path, [(1, [node("a", 1)])], [code], number=2)


async def test_an_api_that_is_away_at_the_beginning_is_an_error(
    cluster: LocalApi, client: AsyncClient
) -> None:
    await cluster.stop()
    with pytest.raises(errors.Unreachable):
        await anext(client.watch(Model))


# ---- logs ----------------------------------------------------------------------------------------


class Logs:
    """A kubelet: pod -> its lines; without lines, the node has no streams."""

    def __init__(self, **lines: list[str]) -> None:
        self._lines = lines
        self.queries: list[LogQuery] = []
        self.more = asyncio.Event()

    async def __call__(self, query: LogQuery) -> AsyncIterator[bytes]:
        self.queries.append(query)
        if query.pod not in self._lines:
            raise refusals.APIError("proxy error: dial tcp 10.0.0.1:10350: connection refused")
        for line in self._lines[query.pod]:
            yield f"{line}\n".encode()
        if query.follow:
            await self.more.wait()
            yield b"2026-01-01T00:00:09Z the end"


RUNNING = {
    "phase": "Running",
    "containerStatuses": [{"name": "main", "restartCount": 0, "state": {"running": {}}}],
}


async def job_with_pods(client: AsyncClient) -> Model:
    """A Model stands for a job: the chain of controllers is the same."""
    made = await client.apply(MODEL)
    await add_pod(client, "digits-a", made.object, "edge0", **RUNNING)
    await add_pod(client, "digits-b", made.object, "edge1", **RUNNING)
    await add_pod(client, "digits-stranger", None, "edge0", **RUNNING)
    return made


async def test_the_lines_of_all_pods_come_in_the_order_of_their_times(
    cluster: LocalApi, client: AsyncClient
) -> None:
    made = await job_with_pods(client)
    a = ["2026-01-01T00:00:01Z one", "2026-01-01T00:00:03Z   three \x1b]0;owned\x07"]
    logs = Logs(**{"digits-a": a, "digits-b": ["2026-01-01T00:00:02Z two"]})
    cluster.serve_logs(logs)
    found = [each async for each in client.logs(made)]
    assert [(each.worker, each.text) for each in found] == [
        ("digits-a", "one"),
        ("digits-b", "two"),
        ("digits-a", "  three ]0;owned"),
    ]
    assert [each.worker async for each in client.logs(made, worker="b")] == ["digits-b"]


async def test_a_node_without_log_streams_says_so_and_the_others_go_on(
    cluster: LocalApi, client: AsyncClient
) -> None:
    made = await job_with_pods(client)
    cluster.serve_logs(Logs(**{"digits-b": ["2026-01-01T00:00:02Z two"]}))
    notice, line = [each async for each in client.logs(made)]
    assert notice.is_notice
    assert "node edge0 does not stream logs" in notice.text
    assert "crictl" in notice.text
    assert line.text == "two"


async def test_a_pod_that_has_not_started_says_why(cluster: LocalApi, client: AsyncClient) -> None:
    made = await client.apply(MODEL)
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    unscheduled["message"] = "0/3 nodes are available"
    await add_pod(client, "digits-a", made.object, phase="Pending", conditions=[unscheduled])
    cluster.serve_logs(Logs())
    (notice,) = [each async for each in client.logs(made)]
    assert "has not started yet" in notice.text
    assert "0/3 nodes are available" in notice.text


async def test_a_log_is_followed_with_pods_that_come_later_until_the_job_is_gone(
    cluster: LocalApi, client: AsyncClient
) -> None:
    made = await client.apply(MODEL)
    await add_pod(client, "digits-a", made.object, "edge0", **RUNNING)
    line = "2026-01-01T00:00:01Z hello"
    logs = Logs(**{"digits-a": [line], "digits-b": [line], "digits-c": [line]})
    cluster.serve_logs(logs)
    async with aclosing(client.logs(made, follow=True)) as lines:
        assert (await anext(lines)).worker == "digits-a"
        await add_pod(client, "digits-b", made.object, "edge1", **RUNNING)
        assert (await anext(lines)).worker == "digits-b"
        await add_pod(client, "digits-c", None, "edge1", **RUNNING)  # not of the job
        await cluster.stop_collector()  # the pods outlive the job, so their logs can be read
        await client.delete(made)
        logs.more.set()
        last: list[LogLine] = [each async for each in lines]
    assert sorted(each.worker for each in last) == ["digits-a", "digits-b"]
    assert {each.text for each in last} == {"the end"}


async def test_pods_of_others_cost_no_requests_while_a_log_is_followed(
    cluster: LocalApi, client: AsyncClient
) -> None:
    """The service has Deployments, so a pod of any controller could be its own. Each controller of
    others is judged once.
    """
    service = ObjectRef(JointInferenceService.type_in(), "default", "digits")
    made = JointInferenceService(await create(client, service))
    mine = await create(client, ObjectRef(DEPLOYMENTS, "default", "digits-edge"), made.object)
    others = await create(client, ObjectRef(DEPLOYMENTS, "default", "others"))
    cluster.serve_logs(Logs(**{"digits-a": ["2026-01-01T00:00:01Z hello"]}))
    requests: list[str] = []
    async with (
        await UserClient.from_kubeconfig(
            cluster.kubeconfig, on_request=lambda verb, _code, _s: requests.append(verb)
        ) as kube,
        aclosing(AsyncClient(kube).logs(made, follow=True)) as lines,
    ):
        await add_pod(client, "digits-a", mine, "edge0", **RUNNING)
        assert (await anext(lines)).text == "hello"
        await add_pod(client, "others-0", others, "edge0", **RUNNING)
        await add_pod(client, "digits-b", mine, "edge1", **RUNNING)
        assert (await anext(lines)).worker == "digits-b"  # a notice: it has no log
        before = requests.count("list")
        assert before
        for number in range(1, 10):
            await add_pod(client, f"others-{number}", others, "edge0", **RUNNING)
        await add_pod(client, "digits-c", mine, "edge1", **RUNNING)
        assert (await anext(lines)).worker == "digits-c"
        assert requests.count("list") == before


async def create(client: AsyncClient, ref: ObjectRef, owner: Object | None = None) -> Object:
    """An object without a spec of its own, the controller of which is `owner`."""
    metadata: Object = {"name": ref.name, "namespace": ref.namespace}
    if owner is not None:
        reference = {key: owner["metadata"][key] for key in ("name", "uid")}
        reference |= {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        metadata["ownerReferences"] = [reference]
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "main", "image": "any"}]},
    }
    selector = {"matchLabels": {"a": "b"}}
    spec = {"replicas": 0, "selector": selector, "template": template}
    object_ = {"metadata": metadata} | ({"spec": spec} if ref.type == DEPLOYMENTS else SERVICE)
    return await client.kube.create(ref.type, object_)


SERVICE: Object = {
    "spec": {
        role: {
            "model": {"name": "small"},
            "template": {"spec": {"containers": [{"name": "main", "image": "any"}]}},
        }
        for role in ("edgeWorker", "cloudWorker")
    }
}


# ---- kubeconfig ---------------------------------------------------------------------------------


async def test_the_namespace_of_the_context_counts(cluster: LocalApi, tmp_path: Path) -> None:
    content = yaml.safe_load(cluster.kubeconfig.read_text())
    content["contexts"][0]["context"]["namespace"] = "team-a"
    file = tmp_path / "with-namespace"
    file.write_text(yaml.safe_dump(content))
    async with await AsyncClient.open(file) as client:
        assert client.namespace == "team-a"
        ref = ObjectRef(Model.type_in(), "team-a", "small")
        assert client._ref(MODEL) == ref


async def test_a_user_without_a_right_is_told_whom_to_ask(tmp_path: Path) -> None:
    async with serve_scripted() as api:
        api.lists = [api.failure(403, "Forbidden", 'User "a" cannot list resource "models"')]
        write_kubeconfig(tmp_path / "config", api.url, "t")
        async with await AsyncClient.open(tmp_path / "config") as client:
            with pytest.raises(errors.Forbidden, match="; ask an administrator of the cluster"):
                await client.list(Model)
