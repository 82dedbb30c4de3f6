"""Every page and action of the console, as a person meets them."""

from typing import Any

import pytest

from edgeai.cli.console import login_address
from edgeai.cli.environment import Environment
from tests.browser.conftest import SIZES, Visitor, create, playwright, report, window
from tests.browser.jobs import joint_inference
from tests.support.waiting import eventually

JI = "/jobs/jointinferenceservices.edgeai.io/default"
TORCH = "/jobs/pytorchjobs.kubeflow.org/default/torch"
PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "nodes": "/nodes",
    "node": "/nodes/edge0",
    "joint-inference": f"{JI}/digits",
    "waiting": f"{JI}/waits",
    "federated-learning": "/jobs/federatedlearningjobs.edgeai.io/default/learn",
    "pytorch": TORCH,
    "tensorflow": "/jobs/tfjobs.kubeflow.org/default/tensor",
    "elastic": "/jobs/trainingjobs.kai.alibabacloud.com/default/elastic",
    "scale-out": "/jobs/scaleouts.kai.alibabacloud.com/default/elastic-scaleout",
    "model": "/jobs/models.edgeai.io/default/small",
    "dataset": "/jobs/datasets.edgeai.io/default/images",
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_can_be_read_by_everybody(
    visitor: Visitor, name: str, request: pytest.FixtureRequest
) -> None:
    visitor.go(PAGES[name])
    page = visitor.page
    playwright.expect(page.locator("#line")).to_have_text("live")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    visitor.shoot(f"{name}-{request.node.callspec.params['visitor']}")
    assert violations(page) == []


def violations(page: Any) -> list[str]:
    """What axe calls serious or critical."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {node['html'][:200]}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]


def test_an_open_page_shows_what_comes_and_goes(visitor: Visitor, running: Environment) -> None:
    visitor.go("/jobs?q=newcomer")
    collection = "/apis/edgeai.io/v1alpha1/namespaces/default/jointinferenceservices"
    running.api.create(collection, joint_inference("newcomer"))
    link = visitor.page.get_by_role("link", name="default/newcomer")
    link.wait_for()
    running.api.delete(f"{collection}/newcomer")
    link.wait_for(state="detached")


def points(page: Any) -> int:
    """Points of the curve."""
    return int(page.locator("#plot").get_attribute("data-points") or 0)


def test_a_curve_grows_while_the_page_is_open(visitor: Visitor, running: Environment) -> None:
    page = visitor.page
    visitor.go(f"{JI}/waits")
    for seen in (50, 75, 87):
        report(running, page, "waits", seen)
    eventually("a curve", lambda: points(page) >= 3)
    page.locator("#plot .u-legend", has_text="seen").wait_for()
    drawn = "document.querySelector('#plot canvas').toDataURL()"
    before, picture = points(page), page.evaluate(drawn)
    report(running, page, "waits", 100)
    eventually("a longer curve", lambda: points(page) > before)
    eventually("another picture", lambda: page.evaluate(drawn) != picture)
    playwright.expect(page.locator("#plot .u-legend")).to_contain_text("100")


def test_a_curve_begins_anew_when_the_clock_of_the_browser_is_set_back(
    visitor: Visitor, running: Environment
) -> None:
    page = visitor.page
    visitor.go(f"{JI}/waits")
    for seen in (12, 25, 37):
        report(running, page, "waits", seen)
    eventually("a curve", lambda: points(page) >= 3)
    page.clock.set_fixed_time(page.evaluate("Date.now() / 1000 - 3600"))
    report(running, page, "waits", 62)
    eventually("a new curve", lambda: points(page) == 1)


def test_a_curve_begins_before_the_page_was_opened(visitor: Visitor) -> None:
    """With a Prometheus; here its answer is given, because none scrapes the local cluster."""
    page = visitor.page
    asked = f"{JI}/digits/curve"

    def remember(route: Any) -> None:
        page_now = page.evaluate("Date.now() / 1000")
        times = [page_now - 60 + number for number in range(50)]
        series = {"recall": [0.5] * 49 + [None]}
        route.fulfill(json={"now": page_now, "note": "kept", "times": times, "series": series})

    def with_past(route: Any) -> None:
        text = route.fetch().text()
        shown = text.replace('id="curve" hidden', f'id="curve" hidden data-past="{asked}"')
        note = '<p id="past" class="none" role="status"></p></main>'
        route.fulfill(status=200, body=shown.replace("</main>", note), content_type="text/html")

    page.route(f"**{asked}", remember)
    page.route(f"**{JI}/digits", lambda route: _of_page(route, with_past))
    visitor.go(f"{JI}/digits")
    page.locator("#past", has_text="kept").wait_for()
    page.locator("#plot .u-legend", has_text="recall").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def _of_page(route: Any, answer: Any) -> None:
    """Not the stream of the page's changes, which has the same address."""
    is_stream = "event-stream" in route.request.headers.get("accept", "")
    (route.continue_ if is_stream else lambda: answer(route))()


def test_events_are_loaded_into_the_page(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go(TORCH)
    page.locator("#pod-torch-worker-0").wait_for()
    page.get_by_role("link", name="Load events").focus()
    page.keyboard.press("Enter")
    page.locator("#events table").wait_for()
    page.locator("#events", has_text="torch-worker-0").wait_for()
    assert page.url.endswith(TORCH)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert violations(page) == []
    visitor.go(f"{TORCH}/events")
    page.get_by_role("heading", name="Events of PyTorchJob default/torch").wait_for()
    assert violations(page) == []
    page.get_by_role("link", name="Back to the job").click()
    page.get_by_role("heading", name="PyTorchJob default/torch").wait_for()


def test_who_logs_out_leaves_no_page_behind(chromium: Any, running: Environment) -> None:
    """Neither in another tab nor in the history."""
    with window(chromium, running, SIZES["wide"]) as visitor:
        page = visitor.page
        page.goto(login_address(running.rest_url(), running.api.token))
        visitor.go(TORCH)
        other = page.context.new_page()
        other.goto(visitor.url + "/jobs")
        other.get_by_role("link", name="default/torch").wait_for()
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("Token of the Kubernetes API").wait_for()
        other.get_by_role("button", name="Log out").wait_for(state="detached")
        page.go_back()
        page.wait_for_load_state()
        playwright.expect(page.get_by_role("button", name="Log out")).to_have_count(0)
        assert visitor.faults == []


def test_filters_and_names_lead_from_page_to_page(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/")
    page.get_by_role("link", name="JointInferenceService.edgeai.io").click()
    page.get_by_label("State").select_option("waiting")
    visitor.submit("Filter")
    assert "state=waiting" in page.url
    page.get_by_role("link", name="default/waits").click()
    page.get_by_text("create the Model that the message names").first.wait_for()
    page.get_by_role("link", name="Nodes", exact=True).click()
    page.get_by_role("row", name="edge0").get_by_role("link", name="edge0").click()
    page.get_by_text("Holds all that it must").wait_for()


def test_a_job_is_suspended_resumed_scaled_and_deleted(
    visitor: Visitor, running: Environment
) -> None:
    page = visitor.page
    path = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
    job = running.api.get(f"{path}/torch")
    job["metadata"] = {"name": "victim", "namespace": "default"}
    create(running, job)
    visitor.go("/jobs?q=victim")
    page.get_by_role("link", name="default/victim").click()
    visitor.submit("Suspend")
    page.get_by_role("button", name="Resume").wait_for()
    assert running.api.get(f"{path}/victim")["spec"]["runPolicy"]["suspend"] is True
    visitor.submit("Resume")
    page.get_by_role("button", name="Suspend").wait_for()
    page.get_by_label("Replicas").fill("1")
    visitor.submit("Scale")
    spec = running.api.get(f"{path}/victim")["spec"]
    assert spec["pytorchReplicaSpecs"]["Worker"]["replicas"] == 1
    page.get_by_label("Type the name").fill("victim")
    page.get_by_role("button", name="Delete").click()
    page.wait_for_url("**/jobs")
    assert running.api.find(f"{path}/victim") is None


def test_who_is_not_logged_in_may_look_and_change_nothing(
    chromium: Any, running: Environment
) -> None:
    """On the local cluster, whose REST is open to this machine."""
    with window(chromium, running, SIZES["wide"]) as visitor:
        visitor.go(TORCH)
        visitor.page.get_by_role("heading", name="PyTorchJob default/torch").wait_for()
        assert visitor.page.get_by_role("button", name="Suspend").count() == 0
        assert visitor.page.get_by_role("button", name="Log out").count() == 0
        assert visitor.faults == []


def test_the_keyboard_is_enough(chromium: Any, running: Environment) -> None:
    with window(chromium, running, SIZES["wide"]) as visitor:
        page = visitor.page
        visitor.go("/login")
        playwright.expect(page.get_by_label("Token of the Kubernetes API")).to_be_focused()
        page.keyboard.type(running.api.token)
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Log out").wait_for()
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "default/waits":
                break
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="JointInferenceService default/waits").wait_for()
        assert visitor.faults == []


def test_focus_stays_while_the_page_changes(visitor: Visitor, running: Environment) -> None:
    visitor.go("/jobs")
    link = visitor.page.get_by_role("link", name="default/digits")
    link.focus()
    collection = "/apis/edgeai.io/v1alpha1/namespaces/default/jointinferenceservices"
    running.api.create(collection, joint_inference("another"))
    visitor.page.get_by_role("link", name="default/another").wait_for()
    running.api.delete(f"{collection}/another")
    assert visitor.page.evaluate("document.activeElement.textContent") == "default/digits"


def test_in_the_dark_everything_can_be_read(chromium: Any, running: Environment) -> None:
    with window(chromium, running, SIZES["wide"], color_scheme="dark") as visitor:
        visitor.page.goto(login_address(running.rest_url(), running.api.token))
        for name in ("overview", "nodes", "waiting", "pytorch"):
            visitor.go(PAGES[name])
            visitor.shoot(f"{name}-dark")
            assert violations(visitor.page) == []
        assert visitor.faults == []
