"""What the pages show, to whom."""

import re
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest

from edgeai.ids import NodeName
from globalmanager.edge.sessions.relay import RelayInfo
from globalmanager.ha.claims import day_of
from globalmanager.rest.console.live import PageRate
from tests.globalmanager.rest.authority import Authority
from tests.globalmanager.rest.cluster import JI, RestSide, object_of, session_info
from tests.globalmanager.rest.console.conftest import BEN, Browser

EVIL = "<script>alert(1)</script>'\"&"
JOB = f"/jobs/{JI}.edgeai.io/a/digits"
PAGES = ["/", "/jobs", "/nodes", "/nodes/node-1", JOB]
# As a word of its own: the random tokens of a page may have these digits, too.
TASKS = re.compile(r"\b4711\b")


@pytest.mark.parametrize("path", [*PAGES, "/login", "/jobs/x/y/z", "/static/console.js"])
async def test_every_answer_forbids_what_pages_do_not_need(browser: Browser, path: str) -> None:
    await browser.log_in("ann's")
    answer = await browser.get(path)
    assert answer.headers["Content-Security-Policy"] == (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("path", PAGES)
async def test_no_page_has_code_or_style_in_it_or_an_address_of_another_host(
    browser: Browser, path: str
) -> None:
    await browser.log_in("ann's")
    text = (await browser.get(path)).text
    assert re.findall(r"<script(?! src=\"/static/)", text) == []
    assert re.findall(r"\son[a-z]+=|\sstyle=|<style|javascript:", text) == []
    assert re.findall(r"(?:src|href|action)=\"(?!/|#|\?)", text) == []


@pytest.mark.parametrize("path", ["/", "/jobs", JOB])
async def test_what_tenants_write_stays_text(
    browser: Browser, guarded: RestSide, path: str
) -> None:
    await browser.log_in("ann's")
    guarded.cluster.objects[0]["status"] = {
        "phase": EVIL,
        "metrics": [{"key": EVIL, "value": EVIL}, {"key": f"x{EVIL}", "value": "1"}],
        "workers": {EVIL: {"node": EVIL, "taskInfo": {EVIL: EVIL}}},
        "conditions": [{"type": EVIL, "status": "False", "reason": EVIL, "message": EVIL}],
        "replicaStatuses": {EVIL: {"active": EVIL}},
    }
    text = (await browser.get(path)).text
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text


async def test_a_viewer_of_one_namespace_learns_nothing_of_another(
    browser: Browser, guarded: RestSide
) -> None:
    await browser.log_in("ben's")
    texts = [(await browser.get(path)).text for path in ("/", "/jobs", "/nodes", "/?namespace=b")]
    guarded.cluster.objects += [object_of(f"more-{n}", namespace="a") for n in range(50)]
    again = [(await browser.get(path)).text for path in ("/", "/jobs", "/nodes", "/?namespace=b")]
    assert texts == again
    assert "b/faces" in texts[1]
    for path in (JOB, f"/jobs/{JI}.edgeai.io/a/no-such-job", f"{JOB}?namespace=a"):
        answer = await browser.get(path)
        assert (answer.status, "no such job, or you may not see it" in answer.text) == (404, True)
    for path in ("/nodes/node-1", "/nodes/no-such-node"):
        assert (await browser.get(path)).status == 404
    assert "You may not list nodes" in texts[0]
    everything = "".join(texts)
    assert "a/digits" not in everything
    assert "node-1" not in everything


async def test_who_may_list_nodes_but_not_all_jobs_sees_no_numbers_of_tasks(
    browser: Browser, guarded: RestSide, authority: Authority
) -> None:
    authority.rights_of["nobody"] = [{"verb": "list", "resource": "nodes"}]
    guarded.sessions.desired = dict.fromkeys(guarded.cluster.node_names, 4711)  # type: ignore[arg-type]
    await browser.log_in("nobody's")
    text = (await browser.get("/nodes")).text
    assert "node-1" in text
    assert not TASKS.search(text)
    other = Browser(guarded)
    async with other.client:
        await other.log_in("ann's")
        assert TASKS.search((await other.get("/nodes")).text)


@pytest.mark.parametrize("path", ["/", "/nodes", "/nodes/node-1"])
async def test_who_may_list_one_type_alone_sees_no_numbers_of_tasks(
    browser: Browser, guarded: RestSide, authority: Authority, path: str
) -> None:
    authority.rights_of["nobody"] = [
        {"verb": "list", "resource": "nodes"},
        {"verb": "list", "resource": "models", "group": "edgeai.io", "namespace": ""},
    ]
    guarded.sessions.desired = dict.fromkeys(guarded.cluster.node_names, 4711)  # type: ignore[arg-type]
    await browser.log_in("nobody's")
    answer = await browser.get(path)
    assert (answer.status, TASKS.search(answer.text)) == (200, None)


@pytest.mark.parametrize("path", ["/nodes", "/nodes/node-1", "/nodes?namespace=b"])
async def test_who_may_list_jobs_of_one_namespace_sees_no_numbers_of_tasks(
    browser: Browser, guarded: RestSide, authority: Authority, path: str
) -> None:
    authority.rights_of[BEN["username"]].append({"verb": "list", "resource": "nodes"})
    guarded.sessions.desired = dict.fromkeys(guarded.cluster.node_names, 4711)  # type: ignore[arg-type]
    await browser.log_in("ben's")
    answer = await browser.get(path)
    assert (answer.status, "node-1" in answer.text) == (200, True)
    assert not TASKS.search(answer.text)


async def test_a_node_tells_its_release_and_its_relay_to_who_may_see_all_jobs(
    browser: Browser, guarded: RestSide, authority: Authority
) -> None:
    authority.rights_of["nobody"] = [{"verb": "list", "resource": "nodes"}]
    guarded.sessions.live = [session_info(release="0.9.1")]
    guarded.relays.open["node-1"] = RelayInfo(streams=7, sent_bytes=1 << 20, received_bytes=4711)
    await browser.log_in("ann's")
    page = (await browser.get("/nodes/node-1")).text
    for told in ("0.9.1 · v1", "7 streams", "1.0 MiB to the node", "2026-01-02 03:04:05Z"):
        assert told in page
    assert "7 streams" in (await browser.get("/nodes")).text
    other = Browser(guarded)
    async with other.client:
        await other.log_in("nobody's")
        for path in ("/nodes", "/nodes/node-1"):
            text = (await other.get(path)).text
            shown = [word in text for word in ("0.9.1", "7 stream", "MiB", "Last report")]
            assert shown == [True, False, False, False]


@pytest.mark.parametrize(
    ("days", "words", "is_told"),
    [
        (None, "Certificate", False),
        (0, "ends today", True),
        (1, "ends in 1 day, on", True),
        (29, "ends in 29 days, on", True),
        (200, "ends in 200 days, on", False),
    ],
)
async def test_the_page_of_a_node_says_when_its_certificate_ends_and_what_to_do(
    browser: Browser, guarded: RestSide, days: int | None, words: str, is_told: bool
) -> None:
    now = datetime.now(UTC)
    end = 0 if days is None else day_of((now + timedelta(days=days)).timestamp())
    guarded.contacts.claim(NodeName("node-1"), ledger="l", certificate_end=end)
    await browser.log_in("ann's")
    page = (await browser.get("/nodes/node-1")).text
    assert (words in page) == (days is not None)
    assert ("edgeai credentials --certificates" in page) == is_told


async def test_who_may_see_nothing_is_told_so(browser: Browser) -> None:
    await browser.log_in("nobody's")
    text = (await browser.get("/")).text
    assert "You may not list jobs in all namespaces" in text
    text = (await browser.get("/?namespace=a")).text
    assert "You may not list any jobs in the namespace <b>a</b>" in text


@pytest.mark.parametrize("namespace", ["A", "../a", "a/b", "%00", "x" * 300, "<script>"])
async def test_a_namespace_that_cannot_be_is_answered_without_a_question(
    browser: Browser, authority: Authority, namespace: str
) -> None:
    await browser.log_in("ann's")
    authority.asked.clear()
    answer = await browser.get(f"/jobs?namespace={namespace}")
    assert (answer.status, authority.asked, "<script>" in answer.text) == (404, [], False)


async def test_filters_live_in_the_address(browser: Browser, guarded: RestSide) -> None:
    await browser.log_in("ann's")
    guarded.cluster.objects += [object_of(f"job-{n:03}", namespace="c") for n in range(150)]
    guarded.cluster.objects[-1]["status"] = {"phase": "Failed"}
    assert "job-149" in (await browser.get("/jobs?phase=Failed")).text
    assert "job-148" not in (await browser.get("/jobs?phase=Failed")).text
    assert "c/job" not in (await browser.get("/jobs?kind=Model.edgeai.io")).text
    first = (await browser.get("/jobs?namespace=c&q=JOB-")).text
    assert ("job-099" in first, "job-100" in first) == (True, False)
    assert 'href="?namespace=c&amp;q=JOB-&amp;page=2"' in first
    second = (await browser.get("/jobs?namespace=c&q=JOB-&page=2")).text
    assert ("job-099" in second, "job-100" in second) == (False, True)
    assert "job-149" in (await browser.get("/jobs?q=job-&page=999999")).text


async def test_a_job_says_what_it_waits_for_and_what_to_do(
    browser: Browser, guarded: RestSide
) -> None:
    await browser.log_in("ann's")
    guarded.cluster.objects[0]["status"] = {
        "phase": "Pending",
        "conditions": [
            {
                "type": "Accepted",
                "status": "False",
                "reason": "ModelNotFound",
                "message": "Model small does not exist",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }
        ],
        "metrics": [{"key": "accuracy", "value": "0.75"}],
    }
    text = (await browser.get(JOB)).text
    assert "Model small does not exist" in text
    assert "create the Model that the message names" in text
    assert 'data-metrics="{&#34;accuracy&#34;: 0.75}"' in text
    assert "managedFields" not in text


async def test_a_job_that_has_failed_says_why_and_offers_no_suspension(
    browser: Browser, guarded: RestSide
) -> None:
    await browser.log_in("ann's")
    message = "pod digits-edge-0: Error: container main ended with exit code 3"
    failed = {"type": "Failed", "status": "True", "reason": "Error", "message": message}
    guarded.cluster.objects[0]["status"] = {"phase": "Failed", "conditions": [failed]}
    text = (await browser.get(JOB)).text
    assert "<h2>Why it failed</h2>" in text
    assert "What it waits for" not in text
    assert "<code>edgeai logs</code>" in text
    assert "/suspend" not in text


async def test_before_the_caches_are_filled_a_page_says_so(
    browser: Browser, guarded: RestSide
) -> None:
    await browser.log_in("ann's")
    guarded.populated = False
    answer = await browser.get("/")
    assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
    assert "the caches are not filled yet" in answer.text


@pytest.mark.parametrize("name", ["..%2Fhandlers.py", "handlers.py", "%2e%2e/live.py", "x.js"])
async def test_files_outside_are_no_files(browser: Browser, name: str) -> None:
    assert (await browser.get(f"/static/{name}")).status == 404


async def test_a_file_is_kept_and_has_another_address_when_it_changes(browser: Browser) -> None:
    text = (await browser.get("/login")).text
    found = re.search(r'href="(/static/console.css\?[0-9a-f]{12})"', text)
    assert found is not None
    answer = await browser.get(found[1])
    assert answer.headers["Cache-Control"] == "private, max-age=31536000, immutable"


async def test_only_a_form_may_have_a_body(browser: Browser) -> None:
    async with browser.client.get(browser.world.url + "/", data=b"x") as response:
        assert response.status == 413
    answer = await browser.post("/login", token="x" * 20_000)
    assert answer.status == 413


async def test_one_address_loads_a_bounded_number_of_pages(
    browser: Browser, guarded: RestSide
) -> None:
    """Pages take the event loop from the sessions of the nodes."""
    guarded.console._rate = PageRate(per_s=1e-9, burst=3)
    await browser.log_in("ann's")
    stream = {"Accept": "text/event-stream"}
    assert (await browser.get("/jobs/a/b/c", **stream)).status == 404
    for path, status in (("/", 200), ("/nodes", 200), ("/jobs", 429)):
        assert (await browser.get(path)).status == status
    answer = await browser.get("/jobs", **stream)
    assert (answer.status, answer.headers["Retry-After"]) == (429, "5")
    other = Browser(guarded, local_address="127.0.0.2")
    async with other.client:
        await other.log_in("ann's")
        assert (await other.get("/")).status == 200


@pytest.mark.parametrize("path", ["/nope", "/no/such/page", "/%3Cscript%3E"])
async def test_an_unknown_address_is_a_page_for_a_browser_and_json_for_a_program(
    browser: Browser, path: str
) -> None:
    answer = await browser.get(path, Accept="text/html,*/*")
    assert (answer.status, answer.headers["Content-Type"]) == (404, "text/html; charset=utf-8")
    assert "no such page" in answer.text
    assert "<script>" not in answer.text
    assert "Content-Security-Policy" in answer.headers
    answer = await browser.get(path, Accept="*/*")
    assert (answer.status, answer.headers["Content-Type"]) == (404, "application/json")


async def test_the_overview_leads_to_what_it_counts_and_says_what_to_do_next(
    browser: Browser, guarded: RestSide
) -> None:
    await browser.log_in("ann's")
    guarded.cluster.objects[0]["status"] = {"phase": "Failed"}
    text = (await browser.get("/?namespace=a")).text
    for link in ("state=bad", "state=waiting"):
        assert f'"/jobs?namespace=a&amp;{link}"' in text
    assert text.index("What is wrong") < text.index("a/digits") < text.index("What runs")
    assert "none waits" not in text
    guarded.cluster.objects[0] = object_of("digits", namespace="c")
    text = (await browser.get("/")).text
    assert "no job has failed, none waits" in text
    assert text.index("What runs") < text.index("c/digits")
    assert "No edge has been in contact yet" in text
    guarded.cluster.objects.clear()
    assert "No jobs yet" in (await browser.get("/")).text


async def test_models_stand_apart_from_jobs_and_both_lead_to_each_other(
    browser: Browser, guarded: RestSide
) -> None:
    await browser.log_in("ann's")
    guarded.cluster.objects[0]["spec"] = {"edgeWorker": {"model": {"name": "small"}}}
    model = "/jobs/models.edgeai.io/a/small"
    for path, shown in (("/jobs", [True, False]), ("/models", [False, True])):
        text = (await browser.get(path)).text
        assert [f'href="{page}"' in text for page in (JOB, model)] == shown
    assert f'Model <a href="{model}">small</a>' in (await browser.get(JOB)).text
    text = (await browser.get(model)).text
    assert f'JointInferenceService <a href="{JOB}">digits</a>' in text
    assert '<a href="/models" aria-current="true">' in text


async def test_a_heading_sorts_its_column_up_and_down(browser: Browser, guarded: RestSide) -> None:
    await browser.log_in("ann's")
    guarded.cluster.objects.append(object_of("apples", namespace="c"))
    guarded.cluster.objects[-1]["status"] = {"phase": "Failed"}
    for sort, first, link in (("Phase", "c/apples", "-Phase"), ("-Name", "c/apples", "Name")):
        text = (await browser.get(f"/jobs?q=A&sort={sort}")).text
        rows = re.findall(r'<th scope="row"><a href="[^"]*">([^<]*)<', text)
        assert (rows[0], f"?q=A&amp;sort={link}" in text) == (first, True)
        assert text.count("aria-sort") == 1


async def test_namespaces_are_offered_to_who_may_list_jobs_in_all_of_them(
    browser: Browser, guarded: RestSide
) -> None:
    await browser.log_in("ann's")
    for path in ("/", "/jobs?namespace=b"):
        text = (await browser.get(path)).text
        assert re.findall(r"<option(?: selected)?>([ab])</option>", text) == ["a", "b"]
    other = Browser(guarded)
    async with other.client:
        await other.log_in("ben's")
        text = (await other.get("/")).text
        assert ('<select id="namespace"' in text, 'value="b"' in text) == (False, True)


async def test_a_namespace_without_jobs_is_offered_where_it_is_chosen(browser: Browser) -> None:
    await browser.log_in("ann's")
    text = (await browser.get("/nodes?namespace=zzz")).text
    assert "<option selected>zzz</option>" in text
    assert 'class="namespace" action="/nodes"' in text


@pytest.mark.parametrize("path", ["/no/such", f"{JOB}x", "/nodes/no-such", "/jobs?namespace=A"])
async def test_an_error_is_a_page_with_the_navigation(browser: Browser, path: str) -> None:
    await browser.log_in("ann's")
    answer = await browser.get(path, Accept="text/html")
    assert (answer.status, '<a href="/models"' in answer.text) == (404, True)
    assert 'href="/login"' not in answer.text


async def test_an_empty_list_says_whether_filters_made_it_so(
    browser: Browser, guarded: RestSide
) -> None:
    await browser.log_in("ann's")
    for path in ("/jobs?q=zzz", "/nodes?q=zzz"):
        text = (await browser.get(path)).text
        assert "none that fits the filters" in text
    guarded.cluster.objects.clear()
    assert "none yet" in (await browser.get("/jobs")).text


async def test_the_navigation_says_where_a_page_belongs(browser: Browser) -> None:
    await browser.log_in("ann's")
    assert '<a href="/jobs" aria-current="true">' in (await browser.get(JOB)).text
    assert '<a href="/jobs" aria-current="page">' in (await browser.get("/jobs")).text
    assert (await browser.get("/")).text.count("aria-current") == 1


async def test_a_request_for_the_head_opens_no_page(browser: Browser, guarded: RestSide) -> None:
    await browser.log_in("ann's")
    url, headers = browser.world.url + "/jobs", {"Accept": "text/event-stream"}
    timeout = aiohttp.ClientTimeout(total=10.0)
    async with browser.client.head(url, headers=headers, timeout=timeout) as answer:
        assert (answer.status, answer.content_type) == (200, "text/html")
    assert guarded.live.streams == 0
