"""Who gets into the console, and how a session begins and ends."""

import pytest

from globalmanager.rest.console.login import (
    CODE_S,
    MAX_CODES,
    SESSION_S,
    Logins,
    Session,
    local_path,
)
from tests.globalmanager.rest.authority import Authority
from tests.globalmanager.rest.cluster import RestSide
from tests.globalmanager.rest.console.conftest import Browser


@pytest.mark.parametrize("path", ["/", "/jobs?kind=x", "/nodes", "/jobs/a.b/c/d"])
async def test_a_stranger_is_sent_to_the_login_and_costs_no_question(
    browser: Browser, authority: Authority, path: str
) -> None:
    answer = await browser.get(path)
    assert (answer.status, answer.text) == (303, "")
    assert answer.headers["Location"].startswith("/login?next=/")
    assert (authority.tokens, authority.asked) == ([], [])


async def test_a_token_begins_a_session_and_the_log_out_ends_it(browser: Browser) -> None:
    answer = await browser.post("/login", token=" ann's\n", next="/jobs?kind=x")
    assert (answer.status, answer.headers["Location"]) == (303, "/jobs?kind=x")
    cookie = answer.headers["Set-Cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=28800"))
    assert "ann's" not in cookie
    page = await browser.get("/")
    assert (page.status, ">ann<" in page.text) == (200, True)
    assert (await browser.post("/logout", form_key=page.form_key)).status == 303
    assert (await browser.get("/")).status == 303


async def test_a_session_ends_with_its_time_and_with_its_token(
    browser: Browser, guarded: RestSide, authority: Authority
) -> None:
    await browser.log_in("ann's")
    guarded.clock.now_s += SESSION_S - 1
    assert (await browser.get("/")).status == 200
    guarded.clock.now_s += 2
    assert (await browser.get("/")).status == 303
    await browser.log_in("ben's")
    del authority.users["ben's"]
    await guarded.forget_callers()
    assert (await browser.get("/")).status == 303


@pytest.mark.parametrize("token", ["", "wrong", "two words", "ann's\x01", "ä", "x" * 7000])
async def test_a_wrong_token_is_told_and_begins_nothing(browser: Browser, token: str) -> None:
    answer = await browser.log_in(token)
    assert (answer.status, 'role="alert"' in answer.text) == (403, True)
    assert "Set-Cookie" not in answer.headers
    assert token not in answer.text or not token


async def test_a_token_that_no_cookie_can_hold_is_told_with_the_remedy(
    browser: Browser, authority: Authority
) -> None:
    authority.users["l" * 3000] = {"username": "long"}
    answer = await browser.log_in("l" * 3000)
    assert (answer.status, "kubectl create token" in answer.text) == (400, True)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-4] + "AAAA",
        lambda text: text[1:],
        lambda _text: "",
        lambda _text: "!!",
        lambda _text: "AAAA",
        lambda text: text + text,
    ],
)
async def test_a_forged_cookie_is_no_session(browser: Browser, change: object) -> None:
    assert callable(change)
    cookie = (await browser.log_in("ann's")).headers["Set-Cookie"].split(";")[0]
    name, _, value = cookie.partition("=")
    browser.client.cookie_jar.clear()
    forged = change(value)
    assert (await browser.get("/", Cookie=f"{name}={forged}")).status == 303
    assert (await browser.get("/", Cookie=f"{name}={value}")).status == 200


def test_a_session_of_another_cluster_is_none() -> None:
    one, two = Logins(), Logins()
    one.use_key(b"one")
    two.use_key(b"two")
    session = Session("id", "token", 1.0)
    assert one._open(one._seal(session)) == session
    assert two._open(one._seal(session)) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_another_site_can_log_nobody_in(browser: Browser, headers: dict[str, str]) -> None:
    answer = await browser.post("/login", headers, token="ann's")
    assert (answer.status, "Set-Cookie" in answer.headers) == (403, False)
    own = {"Origin": browser.world.url, "Sec-Fetch-Site": "same-origin"}
    assert (await browser.post("/login", own, token="ann's")).status == 303


async def test_behind_tls_a_form_of_the_same_host_without_tls_logs_nobody_in(
    browser: Browser,
) -> None:
    tls, host = {"X-Forwarded-Proto": "https"}, browser.world.url.removeprefix("http")
    for origin, status in (("http", 403), ("https", 303)):
        headers = {**tls, "Origin": origin + host}
        assert (await browser.post("/login", headers, token="ann's")).status == status


@pytest.mark.parametrize("form_key", ["", "0" * 64, "ä"])
async def test_another_site_can_log_nobody_out(browser: Browser, form_key: str) -> None:
    await browser.log_in("ann's")
    assert (await browser.post("/logout", form_key=form_key)).status == 403
    assert (await browser.get("/")).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example",
        "https://evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "",
        "/a\nb",
    ],
)
async def test_no_login_leads_to_another_site(browser: Browser, path: str) -> None:
    answer = await browser.post("/login", token="ann's", next=path)
    assert answer.headers["Location"] == "/"
    assert local_path("/jobs?namespace=a") == "/jobs?namespace=a"


async def test_a_code_begins_one_session_within_its_time(
    browser: Browser, guarded: RestSide
) -> None:
    code = guarded.logins.new_code("ann's")
    assert (await browser.get(f"/login?code={code}")).status == 303
    assert (await browser.get("/")).status == 200
    assert (await browser.get(f"/login?code={code}")).status == 403
    late = guarded.logins.new_code("ann's")
    guarded.clock.now_s += CODE_S
    assert (await browser.get(f"/login?code={late}")).status == 403


async def test_a_code_is_for_a_console_on_this_machine(browser: Browser, guarded: RestSide) -> None:
    code = guarded.logins.new_code("ann's")
    assert (await browser.get(f"/login?code={code}", Host="console.example")).status == 403


async def test_a_code_is_made_for_this_machine_alone(browser: Browser) -> None:
    token = {"Authorization": "Bearer ann's"}
    answer = await browser.post("/login/code", {**token, "Host": "console.example"})
    assert (answer.status, "log in with the token" in answer.text) == (403, True)
    assert (await browser.post("/login/code", {"Authorization": "Bearer wrong"})).status == 303
    answer = await browser.post("/login/code", token)
    assert (await browser.get(f"/login?code={answer.text}")).headers["Location"] == "/"


def test_codes_are_bounded() -> None:
    logins = Logins()
    codes = [logins.new_code(str(number)) for number in range(MAX_CODES + 1)]
    assert [logins.token_of(code) for code in codes[:2]] == ["", "1"]


async def test_behind_tls_the_cookie_travels_only_by_tls(browser: Browser) -> None:
    answer = await browser.post("/login", {"X-Forwarded-Proto": "https"}, token="ann's")
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith("__Host-edgeai-session=")
    assert "Secure" in cookie


async def test_behind_tls_a_cookie_that_another_host_can_set_is_no_session(
    browser: Browser,
) -> None:
    cookie = (await browser.log_in("ben's")).headers["Set-Cookie"].split(";")[0]
    browser.client.cookie_jar.clear()
    tls = {"X-Forwarded-Proto": "https"}
    assert (await browser.get("/", Cookie=cookie)).status == 200
    assert (await browser.get("/", Cookie=cookie, **tls)).status == 303
    assert (await browser.get("/", Cookie=f"__Host-{cookie}", **tls)).status == 200


@pytest.mark.parametrize("path", ["/logout", "/login/code"])
async def test_a_form_of_another_site_comes_without_the_cookie_and_leaves_it(
    browser: Browser, path: str
) -> None:
    answer = await browser.post(path, {"Sec-Fetch-Site": "cross-site"})
    assert (answer.status, "Set-Cookie" in answer.headers) == (303, False)


async def test_a_session_that_has_ended_is_forgotten(browser: Browser, guarded: RestSide) -> None:
    await browser.log_in("ann's")
    guarded.clock.now_s += SESSION_S + 1
    assert "Max-Age=0" in (await browser.get("/")).headers["Set-Cookie"]


async def test_a_link_of_another_site_logs_nobody_in(browser: Browser, guarded: RestSide) -> None:
    path = "/login?code=" + guarded.logins.new_code("ben's")
    assert (await browser.get(path, **{"Sec-Fetch-Site": "cross-site"})).status == 403
    assert (await browser.get(path, **{"Sec-Fetch-Site": "none"})).status == 303


@pytest.mark.parametrize("name", ["events", "curve"])
async def test_a_job_is_a_page_whatever_its_name(browser: Browser, name: str) -> None:
    page = f"/jobs/pytorchjobs.kubeflow.org/a/{name}"
    for path in (page, f"{page}/events", f"{page}/curve"):
        assert (await browser.get(path)).headers["Location"] == f"/login?next={page}"


@pytest.mark.parametrize("action", ["suspend", "delete"])
async def test_after_the_login_a_form_of_an_old_session_leads_to_its_page(
    browser: Browser, action: str
) -> None:
    page = "/jobs/pytorchjobs.kubeflow.org/a/digits"
    answer = await browser.post(f"{page}/{action}")
    assert (answer.status, answer.headers["Location"]) == (303, f"/login?next={page}")
