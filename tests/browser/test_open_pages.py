"""Pages that stay open: what readers have opened and typed, and a cluster that does not stay as it
was.
"""

import copy
from typing import Any

import pytest

from edgeai.cli.api import Object
from edgeai.cli.console import login_address
from edgeai.cli.environment import Environment
from tests.browser.conftest import SERVICES, SIZES, Visitor, create, playwright, report, window
from tests.browser.jobs import joint_inference, of_every_kind
from tests.support.waiting import eventually
from tests.system.manager import kill_manager

NOTE_POINTS = """
window.points = [];
const note = () => points.push(document.querySelector(".curve")?.dataset.points);
new MutationObserver(note).observe(document.body, { attributes: true, subtree: true });
"""  # a curve has its first point alone for a moment only
PYTORCH = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"


@pytest.fixture
def wide(chromium: Any, running: Environment) -> Any:
    with window(chromium, running, SIZES["wide"]) as visitor:
        visitor.page.goto(login_address(running.rest_url(), running.api.token))
        yield visitor


def service(running: Environment, name: str) -> str:
    """A new service that waits. Returns: the path of its page"""
    return create(running, joint_inference(name, model="missing"))


def training(name: str) -> Object:
    job = next(copy.deepcopy(each) for each in of_every_kind() if each["kind"] == "PyTorchJob")
    job["metadata"]["name"] = name
    return job


def open_page(visitor: Visitor, path: str) -> Any:
    """An open page that is live."""
    visitor.go(path)
    playwright.expect(visitor.page.locator("#line")).to_have_text("live")
    return visitor.page


def test_a_change_closes_nothing_and_takes_nothing_away(
    wide: Visitor, running: Environment
) -> None:
    page = open_page(wide, service(running, "reader"))
    page.locator(".timeline p").first.wait_for()  # the first plan has told the conditions
    page.locator("summary", has_text="YAML").click()
    page.get_by_label("Type the name").fill("rea")
    page.evaluate(
        "document.querySelector('pre').scrollTop = 40; scrollTo(0, 100);"
        "getSelection().selectAllChildren(document.querySelector('.timeline p'))"
    )
    seen = (
        "[document.querySelector('details').open, document.querySelector('pre').scrollTop, scrollY,"
        " getSelection().toString(), document.activeElement.name, document.activeElement.value]"
    )
    before = page.evaluate(seen)
    assert before[0::4] == [True, "name"]
    report(running, page, "reader", 50)
    assert page.evaluate(seen) == before
    running.api.delete(f"{SERVICES}/reader")


def test_forms_follow_a_job_that_others_change(wide: Visitor, running: Environment) -> None:
    page = open_page(wide, create(running, training("shared")))
    visible = page.locator(".actions button:visible")
    playwright.expect(visible).to_have_text(["Suspend", "Scale", "Delete"])
    changed = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": {"Worker": {"replicas": 1}}}
    running.api.patch(f"{PYTORCH}/shared", {"spec": changed})
    playwright.expect(visible).to_have_text(["Resume", "Scale", "Delete"])
    playwright.expect(page.get_by_label("Replicas")).to_have_value("1")
    page.get_by_label("Replicas").fill("7")
    running.api.patch(f"{PYTORCH}/shared", {"spec": {"runPolicy": {"suspend": False}}})
    playwright.expect(visible).to_have_text(["Suspend", "Scale", "Delete"])
    playwright.expect(page.get_by_label("Replicas")).to_have_value("7")
    running.api.delete(f"{PYTORCH}/shared")


def test_a_job_that_is_gone_and_another_of_its_name_offer_nothing(
    wide: Visitor, running: Environment
) -> None:
    page = open_page(wide, service(running, "phoenix"))
    report(running, page, "phoenix", 50)
    delete = page.get_by_role("button", name="Delete")
    delete.wait_for()
    running.api.delete(f"{SERVICES}/phoenix")
    page.get_by_text("it has been deleted since, or your rights have changed").wait_for()
    playwright.expect(delete).to_be_hidden()
    assert page.get_by_role("heading", level=1).count() == 1
    page.evaluate(NOTE_POINTS)
    service(running, "phoenix")
    page.get_by_text("This is another job of the same name").wait_for()
    playwright.expect(delete).to_be_hidden()
    report(running, page, "phoenix", 75)
    eventually(
        "a curve of the other job alone",
        lambda: page.evaluate("window.points.includes('1')"),
    )
    page.reload()
    delete.wait_for()
    running.api.delete(f"{SERVICES}/phoenix")


def test_a_form_for_a_job_that_was_made_anew_changes_nothing(
    wide: Visitor, running: Environment
) -> None:
    """The form was sent before the page could know."""
    page = open_page(wide, path := service(running, "anew"))
    first = page.locator("[name=uid]").first.get_attribute("value")
    running.api.delete(f"{SERVICES}/anew")
    page.get_by_text("it has been deleted since").wait_for()
    service(running, "anew")
    open_page(wide, path)
    page.locator("[name=uid]").first.evaluate("(field, uid) => field.value = uid", first)
    page.get_by_label("Type the name").fill("anew")
    page.get_by_role("button", name="Delete").click()
    page.get_by_text("was deleted and created again after its page was loaded").wait_for()
    page.get_by_role("link", name="Back to the job").click()
    page.wait_for_url(f"**{path}")
    running.api.delete(f"{SERVICES}/anew")


def test_an_order_outlives_filters_and_new_rows(wide: Visitor, running: Environment) -> None:
    page = open_page(wide, "/jobs?sort=Name")
    page.get_by_role("columnheader", name="Name").get_by_role("link").click()
    page.wait_for_url("**/jobs?sort=-Name")
    for name in ("order-a", "order-c"):
        service(running, name)
    page.get_by_label("Name", exact=True).fill("order")
    rows = page.locator("tbody th")
    playwright.expect(rows).to_have_text(["default/order-c", "default/order-a"])
    assert page.url.endswith("sort=-Name&q=order")
    service(running, "order-b")
    names = [f"order-{letter}" for letter in "cba"]
    playwright.expect(rows).to_have_text([f"default/{name}" for name in names])
    for name in names:
        running.api.delete(f"{SERVICES}/{name}")


def test_a_log_stays_where_its_reader_is(wide: Visitor, running: Environment) -> None:
    """At its end, or at a line that has been scrolled to. It is text, whatever is written."""
    job = training("scrolled")
    program = "seq 200; while sleep 0.2; do echo '<b>more</b>'; done"
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    worker["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", program]
    page = open_page(wide, create(running, job))
    page.get_by_role("link", name="Log of scrolled-worker-0").click()
    log = page.locator("#log")

    def more() -> tuple[int, int, int]:
        """Lines after the first; pixels above and below what is shown."""
        text, above, below = log.evaluate(
            "log => [log.textContent, log.scrollTop,"
            " log.scrollHeight - log.scrollTop - log.clientHeight]"
        )
        return text.count("<b>more</b>"), above, below

    eventually("the end", lambda: more()[0] > 2 and more()[2] < 30)
    assert more()[1] > 0
    log.evaluate("log => log.scrollTop = 0")
    count, *_ = more()
    eventually("more lines", lambda: more()[0] > count + 2)
    assert more()[1] == 0

    def refuse(route: Any) -> None:
        is_stream = route.request.resource_type == "eventsource"
        route.fulfill(status=429) if is_stream else route.continue_()

    page.route("**/logs?**", refuse)
    page.reload()
    log.get_by_text("perhaps because too many logs are open").wait_for()
    running.api.delete(f"{PYTORCH}/scrolled")


def test_a_page_outlives_the_globalmanager(wide: Visitor, running: Environment) -> None:
    page = open_page(wide, service(running, "patient"))
    report(running, page, "patient", 50)
    page.route("**/*", lambda route: route.abort())  # the way to the GlobalManager is gone, too
    kill_manager(running)
    page.get_by_text("Not live since").wait_for()
    gap = page.locator(".curve[data-newest='\u2013']")
    playwright.expect(gap).to_have_count(1)
    page.get_by_label("Type the name").fill("patient")
    page.get_by_role("button", name="Delete").click()
    page.get_by_text("so nothing was sent").wait_for()
    playwright.expect(page.get_by_label("Type the name")).to_have_value("patient")
    page.unroute("**/*")
    playwright.expect(page.locator("#line")).to_have_text("live")
    playwright.expect(page.get_by_text("Not live since")).to_be_hidden()
    playwright.expect(page.get_by_text("so nothing was sent")).to_be_hidden()
    report(running, page, "patient", 75)
    page.get_by_role("button", name="Delete").click()
    page.wait_for_url("**/jobs")
    assert running.api.find(f"{SERVICES}/patient") is None


def test_a_stream_that_says_nothing_is_opened_again(wide: Visitor, running: Environment) -> None:
    """As after a sleep of the laptop: no packet says that the connection is dead."""
    wide.page.clock.install()
    page = open_page(wide, service(running, "asleep"))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.headers.get("accept", "")))
    page.clock.fast_forward(600_000)
    eventually("another stream", lambda: page.evaluate("1") and "text/event-stream" in asked)
    playwright.expect(page.locator("#line")).to_have_text("live")
    report(running, page, "asleep", 50)
    running.api.delete(f"{SERVICES}/asleep")


def test_ages_are_true_in_a_browser_whose_clock_is_wrong(
    chromium: Any, running: Environment
) -> None:
    with window(chromium, running, SIZES["wide"]) as visitor:
        page = visitor.page
        page.goto(login_address(running.rest_url(), running.api.token))
        page.clock.install()
        page.clock.set_system_time(page.evaluate("Date.now() / 1000 + 3600"))
        path = service(running, "clock")
        open_page(visitor, path)
        age = page.locator("#live time").first
        eventually("a true age", lambda: age.inner_text().endswith("s"))
        running.api.delete(f"{SERVICES}/clock")


def test_an_address_without_a_page_is_told_as_a_page(wide: Visitor) -> None:
    assert wide.page.goto(f"{wide.url}/no/such").status == 404
    wide.page.get_by_role("heading", name="Not found").wait_for()
    wide.page.get_by_role("link", name="Overview").click()
    wide.page.get_by_role("heading", name="Overview").wait_for()


@pytest.mark.parametrize("size", SIZES)
def test_a_status_of_long_words_and_strange_numbers_fits(
    chromium: Any, running: Environment, size: str
) -> None:
    name, word = f"strange-{size}", "w" * 200
    status = {
        "phase": "P" * 60,
        "conditions": [
            {
                "type": word,
                "status": "False",
                "reason": word,
                "message": f"<b>\n\u202e{word}",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
        "workers": {f"{word}-{number}": {"node": word} for number in range(2000)},
        "metrics": [
            {"key": key, "value": value}
            for key, value in (
                ("max", "1e308"),
                ("min", "-1e308"),
                ("big", "1e299"),
                ("nan", "NaN"),
            )
        ],
    }
    with window(chromium, running, SIZES[size]) as visitor:
        visitor.page.goto(login_address(running.rest_url(), running.api.token))
        page = open_page(visitor, service(running, name))

        def shown() -> tuple[bool, ...] | None:
            # Again each time, and all in one look: a plan puts the status of the job right.
            running.api.patch(f"{SERVICES}/{name}/status", {"status": status})
            text, *fits = page.evaluate(
                "[document.querySelector('main').innerText + ['big', 'max'].map((key) =>"
                " key + document.querySelector(`.curve[data-key=${key}]`)?.dataset.newest),"
                " document.documentElement.scrollWidth <= window.innerWidth]"
            )
            expected = (f"{word}-199", "and 1800 more", "big1e+299", "max\u2013")
            return tuple(fits) if all(each in text for each in expected) else None

        assert eventually("the status on the page", shown) == (True,)
        visitor.shoot(name)
        assert visitor.faults == []
    running.api.delete(f"{SERVICES}/{name}")
