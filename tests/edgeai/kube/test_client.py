"""The client's requests, and the exception that each fault of the server becomes."""

import asyncio
import time
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from common.tasks import TaskGroup
from edgeai.api.resources import DEPLOYMENTS, NODES, PODS, ObjectRef
from edgeai.errors import Unavailable
from edgeai.ids import Uid
from edgeai.kube import errors
from edgeai.kube.client import KubeClient
from edgeai.kube.lines import MAX_LINE_BYTES
from edgeai.kube.rate import Share
from edgeai.kube.sender import ClientSettings
from tests.globalmanager.objects import make
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.kubeconfig import write_kubeconfig
from tests.support.waiting import async_eventually

REF = ObjectRef(PODS, "ns", "a")
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "ns"}}


async def lines_of(client: KubeClient, timeout_s: int = 60) -> list[bytes]:
    lines = client.watch_lines(PODS, resource_version="7", timeout_s=timeout_s)
    async with aclosing(lines):
        return [line async for line in lines]


async def test_every_request_carries_the_token(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.others = [scripted.json(POD)]
    assert await scripted_client.get(REF) == POD
    assert scripted.seen[0].headers["Authorization"] == "Bearer letmein"
    assert scripted.seen[0].path == "/api/v1/namespaces/ns/pods/a"


async def test_a_list_is_read_page_by_page(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    first, second = (make(name) for name in "ab")
    scripted.lists = [
        scripted.listing(first, version=5, more="next"),
        scripted.listing(second, version=9),
    ]
    listing = await scripted_client.list(DEPLOYMENTS, namespace="ns", label_selector="x=y")
    assert [item["metadata"]["name"] for item in listing.items] == ["a", "b"]
    assert listing.resource_version == "5"
    assert [request.query.get("continue") for request in scripted.seen] == [None, "next"]
    assert {request.query["labelSelector"] for request in scripted.seen} == {"x=y"}


async def test_a_listing_keeps_a_part_of_each_object(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.lists = [scripted.listing(make("a"), version=5)]
    listing = await scripted_client.list(
        DEPLOYMENTS, part_of=lambda object_: {"metadata": {"name": object_["metadata"]["name"]}}
    )
    assert listing.items == [{"metadata": {"name": "a"}}]


async def test_listed_objects_have_their_type(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    untyped = {"metadata": make("n")["metadata"]}
    scripted.lists = [scripted.listing(untyped, version=1)]
    [node] = (await scripted_client.list(NODES)).items
    assert (node["apiVersion"], node["kind"]) == ("v1", "Node")


async def test_delete_names_the_uid(scripted: ScriptedApi, scripted_client: KubeClient) -> None:
    scripted.others = [scripted.json({"kind": "Status", "status": "Success"})]
    assert await scripted_client.delete(REF, uid=Uid("u-1")) is None
    sent = msgspec.json.decode(scripted.bodies[0])
    assert sent["preconditions"] == {"uid": "u-1"}
    assert sent["propagationPolicy"] == "Background"


async def test_a_forced_delete_does_not_wait_for_the_kubelet(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.others = [scripted.json({"kind": "Status", "status": "Success"})] * 2
    await scripted_client.delete(REF)
    await scripted_client.delete(REF, grace_period_s=0)
    first, forced = map(msgspec.json.decode, scripted.bodies)
    assert "gracePeriodSeconds" not in first
    assert forced["gracePeriodSeconds"] == 0


async def test_delete_returns_an_object_that_still_terminates(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    ending = {**POD, "metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    scripted.others = [scripted.json(ending)]
    assert await scripted_client.delete(REF) == ending


async def test_merge_patch_has_its_content_type(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.others = [scripted.json(POD)]
    await scripted_client.merge_patch(REF, {"status": {"x": None}}, subresource="status")
    request = scripted.seen[0]
    assert (request.method, request.path) == ("PATCH", "/api/v1/namespaces/ns/pods/a/status")
    assert request.headers["Content-Type"] == "application/merge-patch+json"
    assert scripted.bodies == [b'{"status":{"x":null}}']


async def test_a_refusal_is_raised(scripted: ScriptedApi, scripted_client: KubeClient) -> None:
    scripted.others = [scripted.failure(404, "NotFound", 'pods "a" not found')]
    with pytest.raises(errors.NotFound, match='get pods ns/a: pods "a" not found'):
        await scripted_client.get(REF)


async def test_a_redirect_is_not_followed(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.others = [scripted.json({}, 307, Location=f"{scripted.url}/elsewhere")]
    with pytest.raises(errors.ApiError):
        await scripted_client.get(REF)
    assert len(scripted.seen) == 1


@pytest.mark.parametrize("page", ["<html>login</html>", "", "[1, 2]", "null"])
async def test_an_html_page_instead_of_json_is_malformed(
    scripted: ScriptedApi, scripted_client: KubeClient, page: str
) -> None:
    scripted.others = [scripted.text(page)]
    with pytest.raises(errors.Malformed, match="get pods ns/a"):
        await scripted_client.get(REF)


async def test_a_server_that_never_answers_is_unreachable(
    scripted: ScriptedApi, impatient_client: KubeClient
) -> None:
    scripted.others = [scripted.hang()]
    with pytest.raises(errors.Unreachable, match=r"no answer within 0\.3 s"):
        await impatient_client.get(REF)


async def test_an_answer_that_never_ends_is_unreachable(
    scripted: ScriptedApi, impatient_client: KubeClient
) -> None:
    scripted.others = [scripted.stream(b'{"metadata"', then="hang")]
    with pytest.raises(errors.Unreachable, match="no answer within"):
        await impatient_client.get(REF)


async def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    async with await KubeClient.from_kubeconfig(path) as client:
        with pytest.raises(errors.Unreachable, match="get pods ns/a"):
            await client.get(REF)


async def test_retry_after_holds_the_next_request_back(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.others = [
        scripted.failure(429, "TooManyRequests", Retry_After="0.4"),
        scripted.json(POD),
    ]
    with pytest.raises(errors.TooManyRequests) as caught:
        await scripted_client.get(REF)
    assert caught.value.retry_after_s == 0.4
    started = asyncio.get_running_loop().time()
    await scripted_client.get(REF)
    assert asyncio.get_running_loop().time() - started >= 0.35


async def test_a_token_that_expired_is_read_again(scripted: ScriptedApi, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url, token="old")
    scripted.others = [scripted.failure(401, "Unauthorized"), scripted.json(POD)]
    async with await KubeClient.from_kubeconfig(path) as client:
        write_kubeconfig(path, scripted.url, token="new")
        with pytest.raises(errors.Unauthorized):
            await client.get(REF)
        await client.get(REF)
    tokens = [request.headers["Authorization"] for request in scripted.seen]
    assert tokens == ["Bearer old", "Bearer new"]


async def test_no_error_shows_the_body_of_the_request(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.others = [scripted.failure(500, "InternalError", "boom")]
    with pytest.raises(errors.ServerError) as caught:
        await scripted_client.create(PODS, {**POD, "data": {"key": "hunter2"}})
    assert "hunter2" not in str(caught.value)


async def test_each_request_is_counted_by_verb_and_code(
    scripted: ScriptedApi, tmp_path: Path
) -> None:
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    scripted.others = [scripted.json(POD), scripted.failure(404, "NotFound"), scripted.hang()]
    told: list[tuple[str, str]] = []
    async with await KubeClient.from_kubeconfig(
        path,
        ClientSettings(deadline_s=0.2),
        on_request=lambda verb, code, _seconds: told.append((verb, code)),
    ) as client:
        await client.get(REF)
        for _ in range(2):
            with pytest.raises(errors.ApiError):
                await client.get(REF)
    assert told == [("get", "200"), ("get", "404"), ("get", "none")]


# ---- watch --------------------------------------------------------------------------------------


async def test_a_watch_yields_whole_lines_from_any_pieces(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.watches = [scripted.stream(b'{"a":', b'1}\n{"b":2}\n{"c"', b":3}\n")]
    assert await lines_of(scripted_client) == [b"", b'{"a":1}', b'{"b":2}', b'{"c":3}']
    query = scripted.seen[0].query
    assert query["resourceVersion"] == "7"
    assert query["allowWatchBookmarks"] == "true"
    assert query["timeoutSeconds"] == "60"


async def test_a_watch_that_does_not_end_is_silent_after_its_time_and_a_deadline(
    scripted: ScriptedApi, impatient_client: KubeClient
) -> None:
    """The client's deadline is 0.3 s, and the watch's time 1 s."""
    scripted.watches = [scripted.stream({"a": 1}, then="hang")]
    with pytest.raises(errors.Silent, match=r"watch pods: not ended after 1\.3 s"):
        await lines_of(impatient_client, timeout_s=1)


async def test_a_watch_that_is_not_accepted_in_time_is_silent(
    scripted: ScriptedApi, impatient_client: KubeClient
) -> None:
    scripted.watches = [scripted.hang()]
    with pytest.raises(errors.Silent, match=r"watch pods: no answer within 0\.3 s"):
        await lines_of(impatient_client)


async def test_a_cut_watch_is_unreachable(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.watches = [scripted.stream({"a": 1}, then="cut")]
    with pytest.raises(errors.Unreachable):
        await lines_of(scripted_client)


async def test_a_refused_watch_is_an_error(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.watches = [scripted.failure(410, "Expired", "too old")]
    with pytest.raises(errors.Expired, match="watch pods: too old"):
        await lines_of(scripted_client)


async def test_a_line_beyond_the_bound_is_cut_and_the_watch_goes_on(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    large = b"x" * (MAX_LINE_BYTES - 1) + b"\n"
    scripted.watches = [scripted.stream(large, b"x" * (3 * MAX_LINE_BYTES) + b"\n", b"next\n")]
    lengths = [len(line) for line in await lines_of(scripted_client)]
    assert lengths == [0, MAX_LINE_BYTES - 1, MAX_LINE_BYTES, 4]


async def test_pages_of_large_objects_have_fewer_objects(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    """The memory for a page stays bounded, whatever a tenant stores."""
    client = scripted_client.apart(ClientSettings(page_size=8, page_bytes=100_000))
    large = make("large", spec={"x": "x" * 90_000})
    scripted.lists = [
        scripted.listing(make("first"), version=5, more="p2"),
        scripted.listing(*[large] * 8, version=5, more="p3"),
        scripted.listing(*[large] * 4, version=5, more="p3"),
        scripted.listing(large, version=5),
    ]
    listing = await client.list(PODS)
    assert len(listing.items) == 2
    limits = [(each.query["limit"], each.query.get("continue")) for each in scripted.seen]
    assert limits == [("8", None), ("8", "p2"), ("2", "p2"), ("1", "p2")]


async def test_behind_large_objects_pages_grow_again(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    """A tenant with large objects does not make the start slow for the objects of all others."""
    client = scripted_client.apart(ClientSettings(page_size=16, page_bytes=100_000))
    large = make("large", spec={"x": "x" * 20_000})
    small = [scripted.listing(make(f"s{n}"), version=5, more=f"p{n + 2}") for n in range(3)]
    scripted.lists = [
        scripted.listing(*[large] * 16, version=5, more="p1"),
        scripted.listing(*[large] * 4, version=5, more="p1"),
        *small,
        scripted.listing(make("last"), version=5),
    ]
    listing = await client.list(PODS)
    assert len(listing.items) == 8
    limits = [(each.query["limit"], each.query.get("continue")) for each in scripted.seen]
    assert limits == [
        ("16", None),
        ("4", None),
        ("4", "p1"),
        ("8", "p2"),
        ("16", "p3"),
        ("16", "p4"),
    ]


async def test_a_creation_is_checked_after_the_wait_for_the_rate(
    scripted: ScriptedApi, tmp_path: Path
) -> None:
    """The reason to stop may become known while the request waits."""
    scripted.others = [scripted.json(POD)]
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    still_wanted = True

    def check() -> None:
        if not still_wanted:
            raise errors.Conflict("create", "pods ns/a", message="not any more")

    slow = ClientSettings(qps=2.0, burst=1)
    async with await KubeClient.from_kubeconfig(path, slow) as client:
        await client.create(PODS, POD, check=check)
        waiting = asyncio.create_task(client.create(PODS, POD, check=check))
        await asyncio.sleep(0)
        still_wanted = False
        with pytest.raises(errors.Conflict, match="not any more"):
            await waiting
    assert len(scripted.seen) == 1


# ---- a new line ----


async def test_a_new_line_ends_what_hangs_on_the_old_one(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.watches = [scripted.stream(then="hang")]
    scripted.others = [scripted.hang(), scripted.json({"major": "1"}), scripted.json(POD)]
    patient = scripted_client.apart(ClientSettings(deadline_s=60))
    watch = asyncio.create_task(lines_of(patient), name="watch")
    get = asyncio.create_task(patient.get(REF), name="get")
    await async_eventually("a watch and a get", lambda: len(scripted.seen) == 2)
    redialled = scripted_client.redialled
    await scripted_client.redial(deadline_s=60)
    for task in (watch, get):
        with pytest.raises(errors.Unreachable, match="given up for a new one"):
            await task
    assert redialled.is_set()
    assert not scripted_client.redialled.is_set()
    assert scripted.seen[2].path == "/version"
    assert await scripted_client.get(REF) == POD


async def test_a_new_line_takes_no_connection_of_the_old_one(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.others = [scripted.json(POD)]
    for _ in range(2):
        await scripted_client.get(REF)
    await scripted_client.redial(deadline_s=60)
    await scripted_client.get(REF)
    before, again, asked, after = (request.transport for request in scripted.seen)
    assert before is again
    assert before is not asked
    assert asked is after


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_a_server_that_cannot_answer_leaves_the_old_line(
    scripted: ScriptedApi, scripted_client: KubeClient, code: int
) -> None:
    scripted.watches = [scripted.stream(then="hang")]
    scripted.others = [scripted.failure(code, "Busy")]
    patient = scripted_client.apart(ClientSettings(deadline_s=60))
    watch = asyncio.create_task(lines_of(patient), name="watch")
    await async_eventually("a watch", lambda: scripted.seen)
    redialled = scripted_client.redialled
    with pytest.raises(Unavailable):
        await scripted_client.redial(deadline_s=60)
    assert not redialled.is_set()
    assert not watch.done()
    watch.cancel()
    await asyncio.wait([watch])


async def test_a_server_that_refuses_answers(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    """Who may not ask for the version may be let do all that counts."""
    scripted.others = [scripted.failure(403, "Forbidden")]
    redialled = scripted_client.redialled
    await scripted_client.redial(deadline_s=60)
    assert redialled.is_set()


# ---- shares of the rate ----


async def test_a_report_passes_a_queue_of_plans(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.others = [scripted.json(POD)]
    client = scripted_client.apart(ClientSettings(qps=20, burst=1, deadline_s=60))
    plans, reports = (client.on_share(share) for share in (Share.PLANS, Share.REPORTS))
    answered: list[str] = []

    async def ask(by: KubeClient, what: str) -> None:
        await by.get(REF)
        answered.append(what)

    async with TaskGroup() as tasks:
        for _ in range(30):
            tasks.create_task(ask(plans, "plan"), name="plan")
        await async_eventually("five answers", lambda: len(answered) == 5)
        tasks.create_task(ask(reports, "report"), name="report")
    assert answered.index("report") < 10


class Gauge:
    """An API server that counts the requests that are under way at the same time."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def answer(self, _request: web.Request) -> web.StreamResponse:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.02)
        self.now -= 1
        return web.json_response(POD)


@pytest.mark.parametrize(
    ("share", "most"),
    [(Share.PLANS, 2), (Share.STATUSES, 2), (Share.REPORTS, 3), (Share.OTHER, 12)],
)
async def test_a_share_has_no_more_requests_under_way_than_its_slots(
    scripted: ScriptedApi, tmp_path: Path, share: Share, most: int
) -> None:
    gauge = Gauge()
    scripted.others = [gauge.answer]
    settings = ClientSettings(
        plan_requests=2,
        calm_plan_requests=2,
        report_requests=3,
        slot_hold_s=60,
        deadline_s=60,
    )
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    async with await KubeClient.from_kubeconfig(path, settings) as client:
        sharing = client.on_share(share)
        await asyncio.gather(*(sharing.get(REF) for _ in range(12)))
    assert gauge.most == most


async def test_plans_have_more_requests_under_way_while_no_assignment_changes(
    scripted: ScriptedApi, tmp_path: Path
) -> None:
    gauge = Gauge()
    scripted.others = [gauge.answer]
    settings = ClientSettings(calm_plan_requests=5, slot_hold_s=60, deadline_s=60)
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    async with await KubeClient.from_kubeconfig(path, settings) as client:
        plans = client.on_share(Share.PLANS)
        await asyncio.gather(*(plans.get(REF) for _ in range(12)))
        assert gauge.most == 5
        gauge.most = 0
        client.make_way()
        await asyncio.gather(*(plans.get(REF) for _ in range(4)))
    assert gauge.most == 1


async def test_requests_that_wait_for_a_slot_heed_retry_after(
    scripted: ScriptedApi, tmp_path: Path
) -> None:
    scripted.others = [
        scripted.failure(429, "TooManyRequests", Retry_After="2"),
        scripted.json(POD),
    ]
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    settings = ClientSettings(calm_plan_requests=1, slot_hold_s=60, deadline_s=60)
    async with await KubeClient.from_kubeconfig(path, settings) as client:
        plans = client.on_share(Share.PLANS)
        asked = [asyncio.create_task(plans.get(REF)) for _ in range(5)]
        with pytest.raises(errors.TooManyRequests):
            await asked[0]
        refused_at = time.monotonic()
        await asyncio.gather(*asked[1:])
    assert time.monotonic() - refused_at > 1.5
