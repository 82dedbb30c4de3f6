"""What a person may change, and with whose rights."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from edgeai.ids import Uid
from edgeai.kube.client import KubeClient
from edgeai.kube.sender import ClientSettings
from globalmanager.kinds.elastic import trainingjob
from globalmanager.rest.access import KubernetesAccess
from globalmanager.rest.console.actions import MESSAGES, CallersApi, choices_of, patch_of
from globalmanager.tokenreviews import TokenReviews
from tests.globalmanager.rest.authority import Authority
from tests.globalmanager.rest.cluster import RestSide
from tests.globalmanager.rest.console.conftest import BEN, Browser
from tests.globalmanager.scripted_api import ScriptedApi

DIGITS = "/jobs/pytorchjobs.kubeflow.org/a/digits"
API_PATH = "/apis/kubeflow.org/v1/namespaces/a/pytorchjobs/digits"
JOB = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "digits", "namespace": "a", "uid": "u1", "resourceVersion": "7"},
    "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}},
}
ANNOTATION = "job-supervisor.kube-ai.io/job-suspended"
OWNER = {"username": "owner"}


@pytest.fixture
async def guarded(
    authority: Authority, scripted: ScriptedApi, scripted_client: KubeClient
) -> AsyncIterator[RestSide]:
    authority.users["owner's"] = OWNER
    authority.rights_of["owner"] = [{"verb": verb} for verb in ("list", "patch", "delete")]
    authority.others = scripted.json({"metadata": {"name": "digits"}})
    callers = scripted_client.for_callers(ClientSettings())
    access = KubernetesAccess(TokenReviews(scripted_client))
    async with callers, RestSide(access, callers_api=CallersApi(callers)).running() as world:
        world.cluster.objects = [JOB]
        yield world


def changes(scripted: ScriptedApi) -> list[tuple[str, str, str, Any]]:
    """(method, path, token, body) of every request that could change a job."""
    return [
        (
            request.method,
            request.path,
            request.headers.get("Authorization", ""),
            msgspec.json.decode(body) if body else None,
        )
        for request, body in zip(scripted.seen, scripted.bodies, strict=True)
        if "reviews" not in request.path
    ]


async def form_of(browser: Browser, token: str = "owner's") -> dict[str, str]:
    await browser.log_in(token)
    return {"form_key": (await browser.get(DIGITS)).form_key, "uid": "u1"}


@pytest.mark.parametrize(
    ("action", "fields", "patch"),
    [
        ("suspend", {}, {"spec": {"runPolicy": {"suspend": True}}}),
        ("resume", {}, {"spec": {"runPolicy": {"suspend": False}}}),
        (
            "scale",
            {"replicas": "5"},
            {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 5}}}},
        ),
    ],
)
async def test_a_change_is_a_request_with_the_callers_own_token(
    browser: Browser, scripted: ScriptedApi, action: str, fields: dict[str, str], patch: Any
) -> None:
    form = await form_of(browser)
    answer = await browser.post(f"{DIGITS}/{action}", **form, **fields)
    assert (answer.status, answer.headers["Location"]) == (303, f"{DIGITS}?done={action}")
    texts = [
        (await browser.get(answer.headers["Location"], Referer=f"{site}/jobs")).text
        for site in (browser.world.url, "https://evil.example")
    ]
    notice = f'<p class="notice good" role="status">{MESSAGES[action]}'
    assert [notice in text for text in texts] == [True, False]
    whole = {**patch, "metadata": {"uid": "u1"}}
    assert changes(scripted) == [("PATCH", API_PATH, "Bearer owner's", whole)]


@pytest.mark.parametrize(
    ("action", "spec", "annotations"),
    [("suspend", {"suspend": True}, {}), ("resume", {"suspend": False}, {ANNOTATION: None})],
)
def test_a_training_job_is_resumed_whichever_way_it_was_suspended(
    action: str, spec: dict[str, Any], annotations: dict[str, Any]
) -> None:
    metadata = {"uid": "u1"} | ({"annotations": annotations} if annotations else {})
    expected = {"spec": spec, "metadata": metadata}
    assert patch_of(action, trainingjob.KIND.definition, {}, Uid("u1"), {}) == expected
    for suspended in (
        {"spec": {"suspend": True}},
        {"metadata": {"annotations": {ANNOTATION: "true"}}},
    ):
        assert choices_of(trainingjob.KIND.definition, suspended).forms["resume"]
    assert choices_of(trainingjob.KIND.definition, {"spec": {}}).forms["suspend"]


async def test_a_job_is_deleted_when_its_name_is_typed(
    browser: Browser, scripted: ScriptedApi
) -> None:
    form = await form_of(browser)
    for name in ("", "Digits", "faces"):
        assert (await browser.post(f"{DIGITS}/delete", **form, name=name)).status == 400
    assert changes(scripted) == []
    answer = await browser.post(f"{DIGITS}/delete", **form, name="digits")
    assert (answer.status, answer.headers["Location"]) == (303, "/jobs?done=delete")
    [(method, path, token, body)] = changes(scripted)
    assert (method, path, token) == ("DELETE", API_PATH, "Bearer owner's")
    assert body["preconditions"] == {"uid": "u1"}


@pytest.mark.parametrize("action", ["suspend", "scale", "delete"])
@pytest.mark.parametrize(
    ("change", "headers"),
    [
        ({"form_key": ""}, {}),
        ({"form_key": "0" * 64}, {}),
        ({"uid": ""}, {}),
        ({}, {"Origin": "https://evil.example"}),
        ({}, {"Sec-Fetch-Site": "cross-site"}),
        ({}, {"Cookie": ""}),
    ],
)
async def test_another_site_changes_nothing(
    browser: Browser,
    scripted: ScriptedApi,
    action: str,
    change: dict[str, str],
    headers: dict[str, str],
) -> None:
    form = await form_of(browser) | {"name": "digits", "replicas": "5"} | change
    if "Cookie" in headers:
        browser.client.cookie_jar.clear()
    answer = await browser.post(f"{DIGITS}/{action}", headers, **form)
    assert answer.status in (303, 403, 404)
    assert answer.headers.get("Location", "/login").startswith("/login")
    assert changes(scripted) == []


async def test_the_form_of_another_session_changes_nothing(
    browser: Browser, guarded: RestSide, scripted: ScriptedApi
) -> None:
    form = await form_of(browser)
    other = Browser(guarded)
    async with other.client:
        await other.log_in("owner's")
        assert (await other.post(f"{DIGITS}/suspend", **form)).status == 403
    assert changes(scripted) == []


async def test_who_may_only_look_is_offered_nothing_and_changes_nothing(
    browser: Browser, authority: Authority, scripted: ScriptedApi
) -> None:
    authority.rights_of[BEN["username"]] = [{"verb": "list"}]
    form = await form_of(browser, "ben's")
    assert "/suspend" not in (await browser.get(DIGITS)).text
    for action in ("suspend", "scale", "delete"):
        answer = await browser.post(f"{DIGITS}/{action}", **form, name="digits", replicas="5")
        assert (answer.status, "cannot" in answer.text) == (403, True)
    assert changes(scripted) == []


async def test_the_page_offers_what_the_caller_may_do(browser: Browser, guarded: RestSide) -> None:
    await browser.log_in("owner's")
    text = (await browser.get(DIGITS)).text
    assert f'action="{DIGITS}/suspend"' in text
    assert 'name="replicas" type="number" min="0" max="1000" value="3"' in text
    assert f'action="{DIGITS}/delete"' in text
    guarded.cluster.objects = [{**JOB, "spec": {"runPolicy": {"suspend": True}}}]
    text = (await browser.get(DIGITS)).text
    assert f'action="{DIGITS}/resume"' in text
    assert "digits/scale" not in text


async def test_the_size_is_the_one_that_scalers_have_made(
    browser: Browser, guarded: RestSide, scripted: ScriptedApi
) -> None:
    job = {**JOB, "status": {"targetWorkers": ["w-0", "w-1", "w-2", "w-3"]}}
    guarded.cluster.objects = [job]
    form = await form_of(browser)
    assert (
        'name="replicas" type="number" min="0" max="1000" value="4"'
        in (await browser.get(DIGITS)).text
    )
    answer = await browser.post(f"{DIGITS}/scale", **form, replicas="3")
    assert (answer.status, "the spec says 3 already" in answer.text) == (409, True)
    assert changes(scripted) == []


@pytest.mark.parametrize("replicas", ["", "-1", "1.5", "1e3", "10001", "9" * 30, "٣", "0x1"])
async def test_a_wrong_number_of_replicas_is_told(
    browser: Browser, scripted: ScriptedApi, replicas: str
) -> None:
    form = await form_of(browser)
    answer = await browser.post(f"{DIGITS}/scale", **form, replicas=replicas)
    assert (answer.status, "replicas:" in answer.text) == (400, True)
    assert changes(scripted) == []


@pytest.mark.parametrize("action", ["nonsense", "patch", "..%2Fsuspend", "status"])
async def test_an_unknown_action_is_none(
    browser: Browser, scripted: ScriptedApi, action: str
) -> None:
    form = await form_of(browser)
    assert (await browser.post(f"{DIGITS}/{action}", **form)).status == 404
    assert changes(scripted) == []


@pytest.mark.parametrize(("code", "shown"), [(403, 403), (409, 409), (404, 404), (500, 502)])
async def test_what_the_api_refuses_is_told(
    browser: Browser, authority: Authority, scripted: ScriptedApi, code: int, shown: int
) -> None:
    form = await form_of(browser)
    authority.others = scripted.failure(code, "Refused", "an admission webhook says no")
    answer = await browser.post(f"{DIGITS}/suspend", **form)
    assert (answer.status, "an admission webhook says no" in answer.text) == (shown, True)


async def test_who_is_not_logged_in_is_sent_to_the_login(
    browser: Browser, scripted: ScriptedApi
) -> None:
    answer = await browser.post(f"{DIGITS}/suspend", uid="u1")
    assert answer.status == 303
    assert changes(scripted) == []


@pytest.mark.parametrize("action", ["suspend", "scale", "delete"])
async def test_a_form_of_an_earlier_job_of_the_name_changes_nothing(
    browser: Browser, scripted: ScriptedApi, action: str
) -> None:
    form = {**await form_of(browser), "uid": "u0", "replicas": "5", "name": "digits"}
    answer = await browser.post(f"{DIGITS}/{action}", **form)
    assert (answer.status, changes(scripted)) == (409, [])
    assert "was deleted and created again after its page was loaded" in answer.text
    assert f'<a href="{DIGITS}">Back to the job</a>' in answer.text


async def test_a_page_that_is_not_there_does_not_lead_to_itself(browser: Browser) -> None:
    await browser.log_in("owner's")
    answer = await browser.get(f"{DIGITS}-none")
    assert (answer.status, "Back to the job" in answer.text) == (404, False)


SERVICE_PAGE = "/jobs/jointinferenceservices.edgeai.io/a/cameras"
SERVICE = {
    "apiVersion": "edgeai.io/v1alpha1",
    "kind": "JointInferenceService",
    "metadata": {"name": "cameras", "namespace": "a", "uid": "u1", "resourceVersion": "7"},
    "spec": {"rollout": {"waves": ["1", "50%"]}},
    "status": {
        "rollout": {
            "version": {"generation": 3, "number": 4, "url": "https://m.test/3"},
            "previous": {"generation": 2, "number": 2, "url": "https://m.test/2"},
            "phase": "Progressing",
            "wave": 1,
        },
        "fleet": {"versions": [{"version": 2, "nodes": 8}, {"version": 4, "nodes": 1}]},
        "conditions": [
            {"type": "RolledOut", "status": "Unknown", "reason": "Progressing", "message": "1 of 2"}
        ],
    },
}


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        ("pause", {"paused": True}),
        ("resume", {"paused": False}),
        ("promote", {"promoted": {"version": 4, "wave": 2}}),
        ("rollback", {"rejected": 4}),
    ],
)
async def test_a_rollout_is_shown_and_changed(
    browser: Browser, scripted: ScriptedApi, action: str, fields: dict[str, Any]
) -> None:
    browser.world.cluster.objects = [SERVICE]
    await browser.log_in("owner's")
    page = await browser.get(SERVICE_PAGE)
    for text in ("4 (https://m.test/3)", "1 of 3", "8 with 2, 1 with 4", "Progressing"):
        assert f"<dd>{text}</dd>" in page.text
    answer = await browser.post(
        f"{SERVICE_PAGE}/{action}-rollout", form_key=page.form_key, uid="u1"
    )
    assert answer.headers["Location"] == f"{SERVICE_PAGE}?done={action}-rollout"
    [(_, _, _, body)] = changes(scripted)
    assert body == {"metadata": {"uid": "u1"}, "spec": {"rollout": fields}}


async def test_a_job_without_a_rollout_has_none_to_change(
    browser: Browser, scripted: ScriptedApi
) -> None:
    form = await form_of(browser)
    assert "rollout" not in (await browser.get(DIGITS)).text
    assert (await browser.post(f"{DIGITS}/promote-rollout", **form)).status == 400
    assert changes(scripted) == []
