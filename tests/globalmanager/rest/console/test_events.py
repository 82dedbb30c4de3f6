"""The Events of a job, read when a person asks, with that person's rights."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from edgeai.api.resources import AUTOSCALERS, ObjectRef
from edgeai.kube.client import KubeClient
from edgeai.kube.sender import ClientSettings
from globalmanager.rest.access import KubernetesAccess
from globalmanager.rest.console.actions import CallersApi
from globalmanager.rest.console.events import MAX_ROWS, EventLimits, Events
from globalmanager.rest.fair_rate import Rate
from globalmanager.tokenreviews import TokenReviews
from tests.globalmanager.rest.authority import Authority
from tests.globalmanager.rest.cluster import TYPES, RestSide
from tests.globalmanager.rest.console.conftest import BEN, Browser
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.waiting import async_eventually

PART = {"HX-Request": "true"}
DIGITS = "/jobs/pytorchjobs.kubeflow.org/a/digits"
EVENTS = f"{DIGITS}/events"
(TORCH,) = (type_ for type_ in TYPES if type_.plural == "pytorchjobs")
REF = ObjectRef(TORCH, "a", "digits")
JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "digits", "namespace": "a", "uid": "u1", "resourceVersion": "7"},
    "spec": {},
}
EVIL = "<script>alert(1)</script>"


def pod(name: str, phase: str = "Running", restarts: int = 0) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}"},
        "spec": {"nodeName": "node-1"},
        "status": {"phase": phase, "containerStatuses": [{"restartCount": restarts}]},
    }


def metadata_of(name: str) -> dict[str, str]:
    return {"name": name, "namespace": "a", "uid": f"uid-{name}", "resourceVersion": "1"}


def event_about(name: str, reason: str, at: str, **more: Any) -> dict[str, Any]:
    return {
        "metadata": metadata_of(f"{name}.{reason}"),
        "involvedObject": {"kind": "Pod", "name": name},
        "type": "Normal",
        "reason": reason,
        "message": f"{reason} happened",
        "lastTimestamp": at,
        **more,
    }


class EventsApi:
    """Answers lists of Events by the uid in the field selector."""

    def __init__(self, scripted: ScriptedApi) -> None:
        self.of: dict[str, list[dict[str, Any]]] = {}
        self.more = ""
        self.asked: list[tuple[str, str, str]] = []  # (path, uid, token)
        self._scripted = scripted
        scripted.lists = [self._answer]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        field, _, uid = request.query["fieldSelector"].partition("=")
        assert field == "involvedObject.uid"
        self.asked.append((request.path, uid, request.headers["Authorization"]))
        limit = int(request.query["limit"])
        found = self.of.get(uid, [])
        more = "more" if len(found) > limit else self.more
        return await self._scripted.listing(*found[:limit], version=1, more=more)(request)


@pytest.fixture
def events(scripted: ScriptedApi) -> EventsApi:
    return EventsApi(scripted)


@pytest.fixture
async def guarded(
    authority: Authority, events: EventsApi, scripted_client: KubeClient
) -> AsyncIterator[RestSide]:
    del events  # it answers
    callers = scripted_client.for_callers(ClientSettings(page_bytes=64 * 1024))
    access = KubernetesAccess(TokenReviews(scripted_client))
    async with callers, RestSide(access, callers_api=CallersApi(callers)).running() as world:
        world.cluster.objects = [JOB]
        yield world


def limit(world: RestSide, **limits: Any) -> Events:
    """Let the console load events within other limits."""
    console = world.console
    console._events = Events(console._callers_api, console._board, EventLimits(**limits))
    return console._events


async def test_events_of_the_job_and_its_pods_are_read_with_the_callers_token(
    browser: Browser, guarded: RestSide, events: EventsApi
) -> None:
    guarded.cluster.pods_of[REF] = [pod("digits-worker-0")]
    events.of["u1"] = [event_about("digits", "Created", "2026-01-01T00:00:00Z", count=3)]
    events.of["uid-digits-worker-0"] = [
        event_about("digits-worker-0", "BackOff", "2026-01-02T00:00:00Z", type="Warning")
    ]
    await browser.log_in("ann's")
    assert "Load events" in (await browser.get(DIGITS)).text
    assert events.asked == []
    text = (await browser.get(EVENTS, **PART)).text
    path = "/api/v1/namespaces/a/events"
    assert events.asked == [(path, uid, "Bearer ann's") for uid in ("u1", "uid-digits-worker-0")]
    assert text.index("BackOff happened") < text.index("Created happened")
    assert '<td data-label="Times">3</td>' in text
    assert '<span class="badge bad">BackOff</span>' in text
    assert "<html" not in text
    assert "Back to the job" in (await browser.get(EVENTS)).text


async def test_who_is_not_logged_in_loads_no_events() -> None:
    """On the local cluster, whose REST is open to this machine: there is no token to show."""
    async with RestSide().running() as world:
        world.cluster.objects = [JOB]
        browser = Browser(world)
        async with browser.client:
            answer = await browser.get(EVENTS, **PART)
    assert (answer.status, "Log in to load events" in answer.text) == (200, True)


async def test_who_may_not_list_events_is_told_so(browser: Browser, scripted: ScriptedApi) -> None:
    problem = 'User "ann" cannot list resource "events"'
    scripted.lists = [scripted.failure(403, "Forbidden", problem)]
    await browser.log_in("ann's")
    answer = await browser.get(EVENTS, **PART)
    assert "You may not list events in the namespace a" in answer.text
    assert len(scripted.paths("list")) == 1


async def test_who_may_not_list_pods_sees_neither_pods_nor_their_events(
    browser: Browser, guarded: RestSide, events: EventsApi, authority: Authority
) -> None:
    guarded.cluster.pods_of[REF] = [pod("digits-worker-0")]
    authority.rights_of[BEN["username"]] = [{"verb": "list", "resource": TORCH.plural}]
    await browser.log_in("ben's")
    text = (await browser.get(DIGITS)).text
    assert ("digits-worker-0" in text, "You may not list pods" in text) == (False, True)
    text = (await browser.get(EVENTS, **PART)).text
    assert [uid for _, uid, _ in events.asked] == ["u1"]
    assert "You may not list pods, so their events are not read" in text
    authority.rights_of[BEN["username"]].append(
        {"verb": "list", "resource": "pods", "namespace": "b"}
    )
    await guarded.forget_callers()
    assert "digits-worker-0" not in (await browser.get(DIGITS)).text


async def test_a_job_of_others_has_no_events_and_costs_no_request(
    browser: Browser, events: EventsApi
) -> None:
    await browser.log_in("ben's")
    for headers in ({}, PART):
        assert (await browser.get(EVENTS, **headers)).status == 404
    assert events.asked == []


async def test_a_job_that_is_deleted_while_its_page_is_open_says_so_in_place_of_events(
    browser: Browser, guarded: RestSide, events: EventsApi
) -> None:
    await browser.log_in("ann's")
    page = (await browser.get(DIGITS)).text
    assert '"responseHandling":[{"code":"204","swap":false},{"code":"...","swap":true}]' in page
    guarded.cluster.objects.clear()
    answer = await browser.get(EVENTS, **PART)
    assert (answer.status, "no such job" in answer.text, "<html" in answer.text) == (
        *(404, True),
        False,
    )
    assert events.asked == []


async def test_a_name_with_dots_is_a_name(
    browser: Browser, guarded: RestSide, events: EventsApi
) -> None:
    metadata = {"name": "a.b-c.events", "namespace": "a", "uid": "u1"}
    guarded.cluster.objects = [{**JOB, "metadata": metadata}]
    path = DIGITS.replace("digits", "a.b-c.events")
    await browser.log_in("ann's")
    assert f'href="{path}"' in (await browser.get("/jobs")).text
    assert f'hx-get="{path}/events"' in (await browser.get(path)).text
    assert (await browser.get(f"{path}/events", **PART)).status == 200
    assert len(events.asked) == 1


async def test_one_load_reads_a_bounded_number_of_objects_those_with_trouble_first(
    browser: Browser, guarded: RestSide, events: EventsApi
) -> None:
    limit(guarded, objects=4)
    guarded.cluster.pods_of[REF] = [
        *(pod(f"digits-{number}") for number in range(1000)),
        pod("digits-failed", "Failed"),
        pod("digits-restarted", restarts=2),
    ]
    hpa = ObjectRef(AUTOSCALERS, "a", "digits")
    guarded.cluster.children_of[REF] = {hpa: {"metadata": {"name": "digits", "uid": "uid-hpa"}}}
    await browser.log_in("ann's")
    text = (await browser.get(EVENTS, **PART)).text
    asked = [uid for _, uid, _ in events.asked]
    assert asked == ["u1", "uid-hpa", "uid-digits-failed", "uid-digits-restarted"]
    assert "the events of 4 of 1004 objects" in text


async def test_events_of_the_newest_scalers_are_read(
    browser: Browser, guarded: RestSide, events: EventsApi
) -> None:
    guarded.cluster.scalers_of[REF] = {
        ObjectRef(TORCH, "a", f"s{number}"): {"metadata": {"name": "s", "uid": f"uid-s{number}"}}
        for number in range(9)
    }
    await browser.log_in("ann's")
    await browser.get(EVENTS, **PART)
    assert [uid for _, uid, _ in events.asked] == ["u1", "uid-s8", "uid-s7", "uid-s6"]


async def test_one_object_shows_a_bounded_number_of_events(
    browser: Browser, events: EventsApi
) -> None:
    moments = [f"2026-01-01T00:{n:02}:00Z" for n in range(60)]
    events.of["u1"] = [event_about("digits", f"Reason-{n}-", at) for n, at in enumerate(moments)]
    await browser.log_in("ann's")
    text = (await browser.get(EVENTS, **PART)).text
    assert text.count("happened") == EventLimits().events
    assert "Reason-59-" in text, "the newest are shown"
    assert "Reason-9-" not in text
    assert "digits has more events than the 50 shown" in text


async def test_a_list_that_ends_early_is_told(
    browser: Browser, guarded: RestSide, events: EventsApi
) -> None:
    limit(guarded, read=3)
    at = "2026-01-01T00:00:00Z"
    events.of["u1"] = [event_about("digits", f"Reason{number}", at) for number in range(4)]
    await browser.log_in("ann's")
    text = (await browser.get(EVENTS, **PART)).text
    assert text.count("happened") == 3
    assert "digits has more events than the 3 read; newer ones may be missing" in text


async def test_one_load_shows_a_bounded_number_of_events(
    browser: Browser, guarded: RestSide, events: EventsApi
) -> None:
    names = [f"digits-{number}" for number in range(5)]
    guarded.cluster.pods_of[REF] = [pod(name) for name in names]
    at = "2026-01-01T00:00:00Z"
    for name in names:
        events.of[f"uid-{name}"] = [event_about(name, f"Reason{n}", at) for n in range(50)]
    await browser.log_in("ann's")
    assert (await browser.get(EVENTS, **PART)).text.count("happened") == MAX_ROWS


async def test_an_event_in_the_newer_form_is_shown(browser: Browser, events: EventsApi) -> None:
    """As the scheduler writes it: without lastTimestamp, count and source."""
    made = {**metadata_of("digits.x"), "creationTimestamp": "2026-01-01T00:00:00Z"}
    newer = {
        "metadata": made,
        "eventTime": "2026-01-02T00:00:00.000000Z",
        "series": {"count": 7},
        "reportingComponent": "default-scheduler",
    }
    events.of["u1"] = [newer, {"metadata": made}]
    await browser.log_in("ann's")
    text = (await browser.get(EVENTS, **PART)).text
    assert '<td data-label="Times">7</td>' in text
    assert "default-scheduler" in text
    assert text.index("2026-01-02T00:00:00.000000Z") < text.index("2026-01-01T00:00:00Z")


async def test_events_of_many_bytes_are_refused(browser: Browser, events: EventsApi) -> None:
    events.of["u1"] = [event_about("digits", "Large", "", message="x" * 100_000)]
    await browser.log_in("ann's")
    text = (await browser.get(EVENTS, **PART)).text
    assert "Events of digits cannot be read: " in text
    assert "more than 65536 bytes" in text
    assert len(text) < 2000


async def test_large_events_of_one_object_do_not_hide_those_of_the_others(
    browser: Browser, guarded: RestSide, events: EventsApi
) -> None:
    guarded.cluster.pods_of[REF] = [pod("digits-0"), pod("digits-1")]
    events.of["uid-digits-0"] = [event_about("digits-0", "Large", "", message="x" * 100_000)]
    events.of["uid-digits-1"] = [event_about("digits-1", "BackOff", "2026-01-02T00:00:00Z")]
    await browser.log_in("ann's")
    text = (await browser.get(EVENTS, **PART)).text
    assert "Events of digits-0 cannot be read: " in text
    assert "BackOff happened" in text


async def test_what_tenants_write_into_events_stays_text(
    browser: Browser, events: EventsApi
) -> None:
    odd = {
        "metadata": metadata_of("x"),
        "type": EVIL,
        "reason": EVIL * 100,
        "message": f"{EVIL}\x1b[2J" * 1000,
        "count": EVIL,
        "eventTime": EVIL,
        "involvedObject": EVIL,
        "source": {"component": EVIL},
    }
    events.of["u1"] = [odd]
    await browser.log_in("ann's")
    text = (await browser.get(EVENTS)).text
    assert ("<script>alert" in text, "\x1b" in text, len(text) < 12_000) == (False, False, True)


async def test_each_caller_loads_seldom_and_one_caller_leaves_room_for_others(
    browser: Browser, guarded: RestSide, events: EventsApi
) -> None:
    limit(guarded, each=Rate(1e-9, 2), total=Rate(1e-9, 3))
    await browser.log_in("ann's")
    for _ in range(4):
        text = (await browser.get(EVENTS, **PART)).text
    assert "Too many loads of events" in text
    assert len(events.asked) == 2
    other = Browser(guarded)
    async with other.client:
        await other.log_in("nobody's")
        assert (await other.get(EVENTS, **PART)).status == 404
        assert len(events.asked) == 2


async def test_the_service_accounts_of_a_namespace_share_their_loads(
    browser: Browser, guarded: RestSide, events: EventsApi, authority: Authority
) -> None:
    """Who owns a namespace can make any number of them."""
    limit(guarded, each=Rate(1e-9, 2))
    for name in ("one", "two", "three"):
        user = f"system:serviceaccount:a:{name}"
        authority.users[name] = {"username": user}
        authority.rights_of[user] = [{"verb": "list", "namespace": "a"}]
        await browser.log_in(name)
        text = (await browser.get(EVENTS, **PART)).text
    assert "Too many loads of events" in text
    assert len(events.asked) == 2


async def test_few_loads_run_at_the_same_time(
    browser: Browser, guarded: RestSide, scripted: ScriptedApi
) -> None:
    loading = limit(guarded, at_once=1)
    scripted.lists = [scripted.hang()]
    await browser.log_in("ann's")
    first = asyncio.create_task(browser.get(EVENTS, **PART))
    await async_eventually("a load", lambda: loading._loading == 1)
    assert "Others load events now" in (await browser.get(EVENTS, **PART)).text
    scripted.released.set()
    assert "Events cannot be read" in (await first).text
    assert loading._loading == 0


async def test_an_api_that_does_not_answer_is_told(
    browser: Browser, guarded: RestSide, scripted: ScriptedApi
) -> None:
    limit(guarded, load_s=0.05)
    scripted.lists = [scripted.hang()]
    await browser.log_in("ann's")
    assert "did not answer in time" in (await browser.get(EVENTS, **PART)).text


async def test_a_token_that_is_over_leads_to_the_login_and_back_to_the_job(
    browser: Browser, scripted: ScriptedApi
) -> None:
    await browser.log_in("ann's")
    scripted.lists = [scripted.failure(401, "Unauthorized")]
    answer = await browser.get(EVENTS, **PART)
    assert (answer.status, answer.headers["HX-Redirect"]) == (401, f"/login?next={DIGITS}")
    assert answer.headers["Set-Cookie"].startswith('edgeai-session=""')
    answer = await browser.get(EVENTS)
    assert (answer.status, answer.headers["Location"]) == (303, f"/login?next={DIGITS}")


async def test_a_field_selector_names_one_uid_whatever_it_is(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.lists = [scripted.listing(version=1)]
    await CallersApi(scripted_client).events("t", "a", r"u,type=\x", 5)  # type: ignore[arg-type]
    (request,) = scripted.paths("list")
    assert request.query["fieldSelector"] == r"involvedObject.uid=u\,type\=\\x"
    assert request.query["limit"] == "5"
