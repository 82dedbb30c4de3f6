"""What the REST API answers: nodes, objects, health, and errors that name the object."""

import asyncio
import json
from datetime import timedelta

import pytest

from edgeai.ids import NodeName
from globalmanager.cache.health import Health
from globalmanager.rest.server import MAX_FIELD_BYTES, MAX_LINE_BYTES
from tests.globalmanager.rest.cluster import JI, SINCE, RestSide, object_of, session_info

N1, GONE = NodeName("node-1"), NodeName("node-gone")


async def test_nodes_are_joined_with_their_sessions(world: RestSide) -> None:
    for node in (N1, GONE):
        world.contacts.claim(node, ledger="ledger")
    world.contacts.release(GONE)
    world.cluster.node_labels = {"node-2": {"node-role.kubernetes.io/edge": ""}}
    world.sessions.desired = {N1: 3, NodeName("node-2"): 1}
    world.sessions.problems = {N1: "of an older connection", GONE: "peer is silent"}
    world.sessions.live = [
        session_info(
            session="node-1-1",
            desired=3,
            held=2,
            last_report_at=SINCE + timedelta(minutes=1),
        )
    ]
    status, answer = await world.get("/api/v1/nodes")
    assert status == 200
    connected, never, gone = answer["items"]
    assert connected == {
        "name": "node-1",
        "inCluster": True,
        "isEdge": False,
        "connected": True,
        "since": "2026-01-02T03:04:05Z",
        "problem": "",
        "certificateEndsOn": None,
        "tasksDesired": 3,
        "tasksHeld": 2,
        "session": {
            "id": "node-1-1",
            "instance": "ledger",
            "protocolVersion": 1,
            "release": "0.1.0",
            "synced": True,
            "lastReportAt": "2026-01-02T03:05:05Z",
        },
    }
    assert (never["name"], never["connected"], never["since"]) == ("node-2", False, None)
    assert (never["tasksDesired"], never["tasksHeld"]) == (1, None)
    assert (never["isEdge"], gone["isEdge"]) == (True, False)
    assert (gone["name"], gone["inCluster"], gone["connected"]) == ("node-gone", False, False)
    assert (never["problem"], gone["problem"]) == ("", "peer is silent")


async def test_lists_join_groups_and_keep_to_their_namespace(world: RestSide) -> None:
    world.cluster.objects = [
        object_of("b"),
        object_of("a", group="sedna.io"),
        object_of("c", namespace="other"),
        object_of("m", plural="models"),
    ]
    assert await names(world, f"/api/v1/{JI}") == ["a", "b", "c"]
    assert await names(world, f"/api/v1/namespaces/default/{JI}") == ["a", "b"]
    assert await names(world, f"/api/v1/namespaces/default/{JI}?group=sedna.io") == ["a"]
    assert await names(world, "/api/v1/models") == ["m"]
    assert await names(world, "/api/v1/namespaces/nowhere/models") == []


async def names(world: RestSide, path: str) -> list[str]:
    status, answer = await world.get(path)
    assert status == 200
    return [item["metadata"]["name"] for item in answer["items"]]


async def test_an_object_is_shown_as_the_api_holds_it_without_managed_fields(
    world: RestSide,
) -> None:
    held = object_of("digits")
    world.cluster.objects = [held]
    status, answer = await world.get(f"/api/v1/namespaces/default/{JI}/digits")
    assert status == 200
    assert "managedFields" in held["metadata"], "the cache is not changed"
    del held["metadata"]["managedFields"]
    assert answer == held


async def test_a_name_that_two_groups_have_is_of_edgeai_unless_asked_otherwise(
    world: RestSide,
) -> None:
    world.cluster.objects = [object_of("x", group="sedna.io"), object_of("x")]
    path = f"/api/v1/namespaces/default/{JI}/x"
    assert (await world.get(path))[1]["apiVersion"] == "edgeai.io/v1alpha1"
    assert (await world.get(path + "?group=sedna.io"))[1]["apiVersion"] == "sedna.io/v1alpha1"


async def test_a_name_that_only_the_second_group_has_is_found(world: RestSide) -> None:
    world.cluster.objects = [object_of("x", group="sedna.io")]
    status, answer = await world.get(f"/api/v1/namespaces/default/{JI}/x/status")
    assert status == 200
    assert answer == {
        "apiVersion": "sedna.io/v1alpha1",
        "kind": "JointInferenceService",
        "namespace": "default",
        "name": "x",
        "uid": "uid-sedna.io-x",
        "generation": 3,
        "status": {"phase": "Running", "workers": {"w": {"status": "running"}}},
    }


async def test_the_workers_of_a_fleet_are_listed_in_pages(world: RestSide) -> None:
    world.cluster.objects = [object_of("x")]
    entries = {"x-node-a": '{"status":"running","taskInfo":{"seen":3}}', "x-node-b": "garbage"}
    world.cluster.slices["x-workers-0"] = {"data": {**entries, "summary": "{}"}}
    path = f"/api/v1/namespaces/default/{JI}/x/workers"
    status, answer = await world.get(f"{path}?limit=2")
    assert (status, answer["metadata"]["remainingItemCount"]) == (200, 1)
    assert answer["items"] == [
        {"name": "w", "status": "running"},
        {"name": "x-node-a", "status": "running", "taskInfo": {"seen": 3}},
    ]
    rest = await world.get(f"{path}?limit=2&continue={answer['metadata']['continue']}")
    assert rest[1]["items"] == [{"name": "x-node-b"}]


NOT_FOUND = {
    "object": (f"/api/v1/namespaces/ns/{JI}/nope", f"{JI} ns/nope: no such object in edgeai.io"),
    "status": (f"/api/v1/namespaces/ns/{JI}/nope/status", f"{JI} ns/nope: no such object"),
    "plural": ("/api/v1/podz", "podz: not served here; the served types are"),
    "group": (f"/api/v1/{JI}?group=x.io", f"{JI}.x.io: not served here"),
    "path": ("/api/v2/nodes", "GET /api/v2/nodes: Not Found; see /openapi.json"),
}


@pytest.mark.parametrize(("path", "message"), NOT_FOUND.values(), ids=NOT_FOUND.keys())
async def test_what_is_not_there_is_named(world: RestSide, path: str, message: str) -> None:
    status, answer = await world.get(path)
    assert (status, answer["code"], answer["reason"]) == (404, 404, "NotFound")
    assert message in answer["message"]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_only_reading_is_allowed(world: RestSide, method: str) -> None:
    async with world.client.request(method, world.url + "/api/v1/nodes") as response:
        assert response.status == 405
        assert response.headers["Allow"] == "GET, HEAD"
        answer = await response.json()
        assert answer["reason"] == "MethodNotAllowed"
        assert f"{method} /api/v1/nodes" in answer["message"]


async def test_a_body_is_refused_unread(world: RestSide) -> None:
    async with world.client.get(world.url + "/api/v1/nodes", data=b"x" * 100) as response:
        assert response.status == 413
        assert (await response.json())["code"] == 413


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * (2 * MAX_LINE_BYTES) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "
        + b"y" * (2 * MAX_FIELD_BYTES)
        + b"\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
    ids=["long line", "long header", "no HTTP"],
)
async def test_a_request_beyond_bounds_is_turned_away(world: RestSide, head: bytes) -> None:
    reader, writer = await asyncio.open_connection(*world.server.address)
    writer.write(head)
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    assert b" 400 " in answer.splitlines()[0]
    assert (await world.get("/healthz"))[0] == 200


async def test_before_the_caches_are_filled_nothing_is_listed(world: RestSide) -> None:
    world.populated = False
    for path in ("/api/v1/nodes", f"/api/v1/{JI}", f"/api/v1/namespaces/x/{JI}/y"):
        async with world.client.get(world.url + path) as response:
            assert response.status == 503
            assert response.headers["Retry-After"] == "5"
            assert "/readyz" in (await response.json())["message"]
    assert (await world.get("/healthz")) == (200, {"ok": True})


async def test_readiness_says_what_is_amiss(world: RestSide) -> None:
    assert await world.get("/readyz") == (200, {"ready": True, "reasons": []})
    world.readiness = Health(False, ("nodes: not listed yet",))
    assert await world.get("/readyz") == (
        503,
        {"ready": False, "reasons": ["nodes: not listed yet"]},
    )


async def test_metrics_are_prometheus_text(world: RestSide) -> None:
    async with world.client.get(world.url + "/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=")
        assert "things_total 3.0" in await response.text()


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/nowhere", "/metrics", "/readyz"])
async def test_nothing_is_cached_and_no_other_origin_is_let_in(world: RestSide, path: str) -> None:
    headers = {"Origin": "https://elsewhere.example"}
    async with world.client.get(world.url + path, headers=headers) as response:
        assert response.headers["Cache-Control"] == "no-store"
        assert not [name for name in response.headers if name.startswith("Access-Control")]


async def test_a_fault_does_not_show_its_insides(world: RestSide) -> None:
    world.cluster.objects = [{"secret": "inside"}]
    status, answer = await world.get(f"/api/v1/{JI}")
    assert status == 500
    assert "inside" not in json.dumps(answer)
