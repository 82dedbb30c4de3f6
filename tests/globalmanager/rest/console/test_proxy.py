"""A proxy before the console logs callers in by a header with their token."""

from collections.abc import AsyncIterator

import pytest
from multidict import CIMultiDict

from edgeai.errors import SettingsError
from edgeai.kube.client import KubeClient
from edgeai.kube.sender import ClientSettings
from globalmanager.rest.access import MAX_TOKEN_CHARS, KubernetesAccess
from globalmanager.rest.console.actions import CallersApi
from globalmanager.rest.console.login import Logins, Session
from globalmanager.rest.console.proxy import ProxyLogin
from globalmanager.rest.errors import RequestError
from globalmanager.tokenreviews import TokenReviews
from tests.globalmanager.rest.authority import Authority
from tests.globalmanager.rest.cluster import RestSide
from tests.globalmanager.rest.console.conftest import Browser
from tests.globalmanager.rest.console.test_actions import API_PATH, DIGITS, JOB, OWNER, changes
from tests.globalmanager.scripted_api import ScriptedApi

HEADER = "X-Forwarded-Access-Token"


@pytest.fixture
async def guarded(
    authority: Authority, scripted: ScriptedApi, scripted_client: KubeClient
) -> AsyncIterator[RestSide]:
    authority.users["owner's"] = OWNER
    authority.users["renewed"] = OWNER
    authority.users["boss's"] = {"username": "boss"}
    authority.users["successor's"] = {**OWNER, "uid": "of another person with the same name"}
    for user in ("owner", "boss"):
        authority.rights_of[user] = [{"verb": verb} for verb in ("list", "patch", "delete")]
    authority.others = scripted.json({"metadata": {"name": "digits"}})
    access = KubernetesAccess(TokenReviews(scripted_client))
    callers = scripted_client.for_callers(ClientSettings())
    world = RestSide(access, callers_api=CallersApi(callers), token_header=HEADER)
    async with callers, world.running():
        world.cluster.objects = [JOB]
        yield world


def of(token: str) -> dict[str, str]:
    return {HEADER: token}


@pytest.mark.parametrize("value", ["ann's", "Bearer ann's", "bearer  ann's "])
async def test_the_token_in_the_header_says_who_looks(browser: Browser, value: str) -> None:
    page = await browser.get("/", **of(value))
    assert (page.status, ">ann<" in page.text) == (200, True)
    assert "Log out" not in page.text
    assert "Set-Cookie" not in page.headers


async def test_one_token_is_asked_about_once(browser: Browser, authority: Authority) -> None:
    for _ in range(3):
        await browser.get("/", **of("ann's"))
    assert authority.tokens == ["ann's"]


async def test_without_the_header_the_page_of_the_login_comes(browser: Browser) -> None:
    for headers in ({}, of(""), {"X-Forwarded-User": "ann"}, {"Authorization": "Bearer ann's"}):
        assert (await browser.get("/", **headers)).headers["Location"] == "/login?next=/"


@pytest.mark.parametrize("value", ["ann", "system:admin", "wrong", "two words", "Basic YTpi"])
async def test_what_is_no_token_gets_nothing(browser: Browser, value: str) -> None:
    """A name least of all. The page of the login would not help: its token would not count."""
    page = await browser.get("/", **of(value))
    assert (page.status, "log in at the proxy again" in page.text) == (403, True)
    assert "digits" not in page.text
    assert value not in page.text


async def test_a_long_token_costs_no_question(browser: Browser, authority: Authority) -> None:
    page = await browser.get("/", **of("x" * (MAX_TOKEN_CHARS + 1)))
    assert (page.status, authority.tokens) == (403, [])


async def test_a_token_that_cannot_be_checked_now_is_not_called_wrong(
    browser: Browser, scripted: ScriptedApi
) -> None:
    scripted.others = [scripted.failure(500, "InternalError")]
    page = await browser.get("/", **of("ann's"))
    assert (page.status, "log in at the proxy again" in page.text) == (503, False)


async def test_two_headers_are_refused(browser: Browser, authority: Authority) -> None:
    """A proxy that adds its own to that of the browser lets the browser choose."""
    both = CIMultiDict([(HEADER, "ann's"), (HEADER, "ben's")])
    async with browser.client.get(browser.world.url, headers=both) as answer:
        assert answer.status == 400
        assert "is there 2 times" in await answer.text()
    assert authority.tokens == []


async def test_the_header_counts_and_not_the_session_of_another(browser: Browser) -> None:
    await browser.log_in("ann's")
    assert ">ann<" in (await browser.get("/")).text
    page = await browser.get("/", **of("ben's"))
    assert (">ann<" in page.text, "system:serviceaccount:b:ben<" in page.text) == (False, True)
    assert (await browser.get("/", **of("wrong"))).status == 403


async def test_a_change_is_made_with_the_token_of_the_header(
    browser: Browser, scripted: ScriptedApi
) -> None:
    """Also where the proxy has renewed it since the page was loaded, and beside a session."""
    await browser.log_in("ann's")
    form = {"form_key": (await browser.get(DIGITS, **of("owner's"))).form_key, "uid": "u1"}
    answer = await browser.post(f"{DIGITS}/suspend", of("renewed"), **form)
    assert answer.status == 303
    [(method, path, token, _)] = changes(scripted)
    assert (method, path, token) == ("PATCH", API_PATH, "Bearer renewed")


@pytest.mark.parametrize("user", ["boss's", "successor's", "owner's"])
async def test_another_site_changes_nothing(
    browser: Browser, scripted: ScriptedApi, user: str
) -> None:
    """The proxy adds the header to its request, too. The site has a key of its own at best."""
    own = (await browser.get(DIGITS, **of("owner's"))).form_key
    others = Logins()
    others.use_key(b"key of another cluster")
    keys = {"": {}, "0" * 64: {}, own: {"Sec-Fetch-Site": "cross-site"}}
    keys[others.form_key(Session("id", "", 0.0))] = {}
    if user != "owner's":
        keys[own] = {}  # of another user
    for key, headers in keys.items():
        answer = await browser.post(
            f"{DIGITS}/suspend", {**of(user), **headers}, form_key=key, uid="u1"
        )
        assert answer.status == 403
    assert changes(scripted) == []


async def test_a_session_and_the_proxy_have_forms_of_their_own(browser: Browser) -> None:
    by_proxy = (await browser.get("/", **of("ann's"))).text
    await browser.log_in("ann's")
    assert (await browser.get("/")).form_key not in by_proxy


async def test_the_log_out_is_the_proxys(browser: Browser) -> None:
    answer = await browser.post("/logout", of("ann's"))
    assert (answer.status, "log out there" in answer.text) == (403, True)
    answer = await browser.get("/login?next=/jobs", **of("ann's"))
    assert (answer.status, answer.headers["Location"]) == (303, "/jobs")


async def test_an_open_page_is_live(browser: Browser) -> None:
    headers = {**of("ann's"), "Accept": "text/event-stream"}
    async with browser.client.get(browser.world.url, headers=headers) as stream:
        assert stream.status == 200
        assert (await stream.content.readline()) == b"event: page\n"


async def test_no_token_stands_in_the_log(
    browser: Browser, capfd: pytest.CaptureFixture[str]
) -> None:
    form = {"form_key": (await browser.get(DIGITS, **of("owner's"))).form_key, "uid": "u1"}
    await browser.post(f"{DIGITS}/suspend", of("renewed"), **form)
    await browser.get("/", **of("wrong-one"))
    said = "".join(capfd.readouterr())
    assert "changed in the console" in said
    assert not any(token in said for token in ("owner's", "renewed", "wrong-one"))


async def test_rest_does_not_know_the_header(browser: Browser) -> None:
    status, _ = await browser.world.get("/api/v1/nodes", **of("ann's"))
    assert status == 401


async def test_off_by_default(scripted_client: KubeClient, authority: Authority) -> None:
    async with RestSide(KubernetesAccess(TokenReviews(scripted_client))).running() as world:
        browser = Browser(world)
        async with browser.client:
            assert (await browser.get("/", **of("ann's"))).status == 303
    assert authority.tokens == []


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("X-Forwarded-User", "is never trusted"),
        ("x-auth-request-EMAIL", "is never trusted"),
        ("X-Forwarded-Groups", "is never trusted"),
        ("Cookie", "is never trusted"),
        ("X Token", "is not the name of a header"),
        ("X-Token:", "is not the name of a header"),
    ],
)
def test_a_name_that_carries_no_token_is_refused(name: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=f"setting consoleTokenHeader: .*{problem}"):
        ProxyLogin(name)


def test_no_form_is_good_before_the_key_is_known() -> None:
    """Else everybody could compute it."""
    with pytest.raises(RequestError):
        Logins().form_key(Session("id", "token", 0.0))


async def test_events_are_read_with_the_token_of_the_header(
    browser: Browser, scripted: ScriptedApi
) -> None:
    scripted.lists = [scripted.listing(version=1), scripted.failure(401, "Unauthorized")]
    await browser.get(f"{DIGITS}/events", **of("owner's"))
    (request,) = scripted.paths("list")
    assert request.headers["Authorization"] == "Bearer owner's"
    answer = await browser.get(f"{DIGITS}/events", **of("owner's"))
    assert (answer.status, "Events cannot be read" in answer.text) == (200, True)
