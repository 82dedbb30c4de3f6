"""Who may read what: the callers and rights of the Kubernetes API, asked over a real socket."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from edgeai.errors import SettingsError
from edgeai.ids import NodeName
from edgeai.kube.client import KubeClient
from globalmanager.app import access_of
from globalmanager.rest.access import AccessLimits, Caller, KubernetesAccess, OpenAccess, Reading
from globalmanager.rest.errors import RequestError
from globalmanager.settings import Settings
from globalmanager.tokenreviews import TokenReviews
from tests.globalmanager.rest.authority import Authority
from tests.globalmanager.rest.cluster import JI, RestSide, object_of, session_info
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.clock import Clock

ONE = f"/api/v1/namespaces/default/{JI}/digits"


@pytest.fixture
def authority(scripted: ScriptedApi) -> Authority:
    return Authority(scripted)


LIMITS = AccessLimits()


@pytest.fixture
async def guarded(
    authority: Authority, scripted_client: KubeClient, clock: Clock
) -> AsyncIterator[RestSide]:
    del authority  # it answers
    access = KubernetesAccess(TokenReviews(scripted_client), limits=LIMITS, clock=clock)
    async with RestSide(access).running() as world:
        world.cluster.objects = [object_of("digits"), object_of("hidden", namespace="other")]
        yield world


async def get(world: RestSide, path: str, token: str = "ann's") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return await world.get(path, **headers)


@pytest.mark.parametrize(
    "path", [f"/api/v1/{JI}", "/api/v1/nodes", ONE, f"{ONE}/status", "/metrics", "/api/v1/podz"]
)
async def test_who_shows_no_token_reads_nothing_and_costs_no_question(
    guarded: RestSide, authority: Authority, path: str
) -> None:
    status, answer = await get(guarded, path, token="")
    assert (status, answer["kind"], answer["apiVersion"]) == (401, "Status", "v1")
    assert (answer["status"], answer["reason"], answer["code"]) == ("Failure", "Unauthorized", 401)
    assert (authority.tokens, authority.asked) == ([], [])


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/openapi.json"])
async def test_health_needs_no_token(guarded: RestSide, path: str) -> None:
    assert (await get(guarded, path, token=""))[0] == 200


async def test_a_caller_reads_exactly_what_it_may(guarded: RestSide, authority: Authority) -> None:
    authority.may("get", namespace="default")
    status, answer = await get(guarded, ONE)
    assert (status, answer["metadata"]["name"]) == (200, "digits")
    [asked] = authority.asked
    assert asked.pop("resourceAttributes") == {
        "verb": "get",
        "group": "edgeai.io",
        "version": "v1alpha1",
        "resource": JI,
        "namespace": "default",
        "name": "digits",
    }
    assert asked == {"user": "ann", "uid": "1", "groups": ["readers"], "extra": {"scopes": ["all"]}}
    for path in (
        f"/api/v1/namespaces/other/{JI}/hidden",
        f"/api/v1/namespaces/other/{JI}/no-such-object",
        f"/api/v1/namespaces/default/{JI}",
        f"/api/v1/{JI}?group=edgeai.io",
        "/api/v1/nodes",
    ):
        status, answer = await get(guarded, path)
        assert (status, answer["kind"], answer["reason"]) == (403, "Status", "Forbidden"), path
        assert "User 'ann' cannot" in answer["message"]


async def test_lists_need_the_right_to_each_group_that_they_join(
    guarded: RestSide, authority: Authority
) -> None:
    authority.may("list", namespace="default")
    status, answer = await get(guarded, f"/api/v1/namespaces/default/{JI}")
    assert (status, "API group 'sedna.io'" in answer["message"]) == (403, True)
    status, answer = await get(guarded, f"/api/v1/namespaces/default/{JI}?group=edgeai.io")
    assert (status, len(answer["items"])) == (200, 1)


async def test_numbers_of_tasks_are_for_who_may_list_all_jobs(
    guarded: RestSide, authority: Authority
) -> None:
    """They come from all namespaces, and a viewer of one learns nothing of the others."""
    guarded.sessions.desired[NodeName("node-1")] = 4711
    guarded.sessions.live = [session_info(node="node-1", held=4712)]
    authority.may("list", resource="nodes", group="")
    for namespace in ("default", ""):
        authority.may("list", namespace=namespace)
        await guarded.forget_callers()
        status, answer = await get(guarded, "/api/v1/nodes")
        node = answer["items"][0]
        assert (status, node["tasksDesired"], node["tasksHeld"]) == (200, None, None)
        assert (node["session"]["id"], node["session"]["lastReportAt"]) == ("s", None)
        assert "471" not in str(answer)
    authority.rights.append({"verb": "list"})
    await guarded.forget_callers()
    _, answer = await get(guarded, "/api/v1/nodes")
    node = answer["items"][0]
    assert (node["tasksDesired"], node["tasksHeld"]) == (4711, 4712)
    assert node["session"]["lastReportAt"] is not None


async def test_metrics_are_read_by_a_right_to_their_path(
    guarded: RestSide, authority: Authority
) -> None:
    assert (await get(guarded, "/metrics"))[0] == 403
    authority.rights.append({"verb": "get", "path": "/metrics"})
    authority.users["bob's"] = {"username": "bob"}
    headers = {"Authorization": "Bearer bob's"}
    async with guarded.client.get(guarded.url + "/metrics", headers=headers) as response:
        assert (response.status, "things_total 3.0" in await response.text()) == (200, True)


async def test_answers_are_remembered_for_a_bounded_time(
    guarded: RestSide, authority: Authority, clock: Clock
) -> None:
    authority.may("get")
    for _ in range(20):
        assert (await get(guarded, ONE))[0] == 200
    assert (len(authority.tokens), len(authority.asked)) == (1, 1)
    authority.rights.clear()
    clock.now_s += LIMITS.allowed_s
    assert (await get(guarded, ONE))[0] == 403
    authority.users.clear()
    clock.now_s += LIMITS.good_s
    assert (await get(guarded, ONE))[0] == 401


async def test_requests_at_the_same_moment_share_an_answer(
    guarded: RestSide, authority: Authority
) -> None:
    authority.may("get")
    answers = await asyncio.gather(*(get(guarded, ONE) for _ in range(30)))
    assert {status for status, _ in answers} == {200}
    assert (len(authority.tokens), len(authority.asked)) == (1, 1)


async def test_false_tokens_cost_few_questions_and_known_callers_go_on(
    guarded: RestSide, authority: Authority
) -> None:
    authority.may("get")
    assert (await get(guarded, ONE))[0] == 200
    statuses = [(await get(guarded, ONE, token=f"false-{n}"))[0] for n in range(100)]
    assert set(statuses) == {401, 429}
    assert len(authority.tokens) <= LIMITS.tokens_of_address.burst
    assert (await get(guarded, ONE))[0] == 200
    statuses = [(await get(guarded, ONE, token="false-0"))[0] for _ in range(20)]
    assert set(statuses) == {401}, "a false token is remembered"


async def test_another_address_is_checked_while_one_floods(
    guarded: RestSide, authority: Authority
) -> None:
    authority.may("get")
    for n in range(100):
        await get(guarded, ONE, token=f"false-{n}")
    reader, writer = await asyncio.open_connection(
        *guarded.server.address, local_addr=("127.0.0.2", 0)
    )
    request = f"GET {ONE} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ann's\r\n\r\n"
    writer.write(request.encode())
    assert b" 200 " in await asyncio.wait_for(reader.readline(), 30)
    writer.close()


@pytest.mark.parametrize("token", ["x" * 7000, "two words", "\u00e9"])
async def test_what_is_no_token_costs_no_question(
    guarded: RestSide, authority: Authority, token: str
) -> None:
    status, _ = await get(guarded, ONE, token=token)
    assert (status, authority.tokens) == (401, [])


async def test_names_that_no_object_has_cost_no_question(
    guarded: RestSide, authority: Authority
) -> None:
    assert (await get(guarded, f"/api/v1/namespaces/A%20b/{JI}/x"))[0] == 404
    assert (await get(guarded, "/api/v1/podz"))[0] == 404
    assert authority.asked == []


async def test_while_the_api_is_away_nobody_is_let_in(
    scripted: ScriptedApi, guarded: RestSide
) -> None:
    scripted.others = [scripted.failure(500, "InternalError", "down")]
    status, answer = await get(guarded, ONE)
    assert (status, answer["reason"]) == (503, "ServiceUnavailable")


async def test_no_token_is_asked_for_on_loopback_alone(scripted_client: KubeClient) -> None:
    settings = Settings(http_auth="none")
    reviews = KubernetesAccess(TokenReviews(scripted_client))
    assert isinstance(access_of(settings, reviews), OpenAccess)
    with pytest.raises(SettingsError, match="none is for a loopback address"):
        access_of(Settings(http_auth="none", http_address="0.0.0.0:9001"), reviews)
    assert access_of(Settings(), reviews) is reviews


async def test_a_caller_with_many_questions_leaves_the_others_their_rights(
    guarded: RestSide, authority: Authority
) -> None:
    authority.users["ben's"] = {"username": "ben"}
    authority.may("get", namespace="default")
    many = range(LIMITS.rights_of_caller.burst + 1)
    asked = [await get(guarded, f"/api/v1/namespaces/n{number}/{JI}/x") for number in many]
    assert [status for status, _ in asked] == [403] * LIMITS.rights_of_caller.burst + [429]
    assert (await get(guarded, ONE, "ben's"))[0] == 200


async def test_people_behind_one_address_get_their_pages(
    guarded: RestSide, authority: Authority
) -> None:
    for number in range(LIMITS.tokens_of_address.burst):
        authority.users[f"token-{number}"] = {"username": f"user-{number}"}
        for question in range(13):
            path = f"/api/v1/namespaces/n{question}/{JI}/x"
            assert (await get(guarded, path, f"token-{number}"))[0] == 403


@pytest.mark.parametrize("path", [ONE, "/api/v1/nodes", "/", "/jobs", "/metrics"])
async def test_without_a_check_of_tokens_the_name_of_another_site_reads_nothing(path: str) -> None:
    async with RestSide().running() as world:
        world.cluster.objects = [object_of("digits")]
        port = world.server.address[1]
        for host in ("evil.example", f"127.0.0.1.evil.example:{port}", "10.0.0.7", "[x", "a:b:c"):
            async with world.client.get(world.url + path, headers={"Host": host}) as response:
                assert response.status in (400, 403), host
        for host in (f"localhost:{port}", f"[::1]:{port}", "127.0.0.1"):
            async with world.client.get(world.url + path, headers={"Host": host}) as response:
                assert response.status == 200, host


async def test_a_session_with_the_name_of_another_site_reads_nothing_either() -> None:
    """Who has a session is identified by the Kubernetes API, and has the rights of everybody."""
    request = make_mocked_request("GET", "/", headers={"Host": "evil.example"})
    with pytest.raises(RequestError, match="only names of loopback"):
        await OpenAccess().check(request, Caller("ann"), Reading("list"))
