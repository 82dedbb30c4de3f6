"""Every page and action of the console, as a person meets them."""

from typing import Any

import pytest

from edgeai.cli.console import login_address
from edgeai.cli.environment import Environment
from tests.browser.conftest import SCHEMES, SIZES, Visitor, create, playwright, report, window
from tests.browser.jobs import joint_inference, training
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
    "models": "/models",
    "scalers": "/scalers",
    "log": f"{TORCH}/logs?pod=torch-worker-0",
    "problem": "/no/such",
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_can_be_read_by_everybody(
    visitor: Visitor, name: str, request: pytest.FixtureRequest
) -> None:
    page = visitor.page
    if name == "problem":
        page.goto(visitor.url + PAGES[name])
        visitor.faults.clear()  # the browser tells the status 404
    else:
        visitor.go(PAGES[name])
    if name not in ("problem", "log"):
        playwright.expect(page.locator("#line")).to_have_text("live")
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        visitor.shoot(f"{name}-{request.node.callspec.params['visitor']}-{scheme}")
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
    running.api.create(joint_inference("newcomer"))
    link = visitor.page.get_by_role("link", name="default/newcomer")
    link.wait_for()
    running.api.delete(f"{collection}/newcomer")
    link.wait_for(state="detached")


def points(page: Any, key: str = "seen") -> int:
    """Points of the curve of a metric."""
    return int(page.locator(f".curve[data-key={key}]").get_attribute("data-points") or 0)


def test_a_curve_grows_while_the_page_is_open(visitor: Visitor, running: Environment) -> None:
    page = visitor.page
    visitor.go(f"{JI}/waits")
    for seen in (50, 75, 87):
        report(running, page, "waits", seen)
    eventually("a curve", lambda: points(page) >= 3)
    drawn = "document.querySelector('#metrics-curves canvas').toDataURL()"
    before, picture = points(page), page.evaluate(drawn)
    report(running, page, "waits", 100)
    eventually("a longer curve", lambda: points(page) > before)
    eventually("another picture", lambda: page.evaluate(drawn) != picture)
    playwright.expect(page.locator(".curve[data-newest='100']")).to_be_visible()


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


def test_a_curve_begins_before_the_page_was_opened(visitor: Visitor, running: Environment) -> None:
    """Each metric has an axis of its own, whoever knows the past; here the answer is given."""
    page = visitor.page
    asked = f"{JI}/digits/curve"

    def remember(route: Any) -> None:
        now = page.evaluate("Date.now() / 1000")
        times = [now - 60 + number for number in range(50)]
        series = {"recall": [0.5] * 49 + [None], "seen": list(range(50))}
        route.fulfill(json={"now": now, "note": "kept", "times": times, "series": series})

    page.route(f"**{asked}", remember)
    visitor.go(f"{JI}/digits")
    report(running, page, "digits", 75)
    page.locator("#metrics-past", has_text="kept").wait_for()
    eventually(
        "the past", lambda: (points(page, "recall") >= 49, points(page) > 49) == (True, True)
    )
    assert page.locator("#metrics-curves canvas").count() == 2
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert violations(page) == []


def test_a_log_is_read_live(visitor: Visitor, running: Environment) -> None:
    page = visitor.page
    job = training("PyTorchJob", "pytorchReplicaSpecs", "talks")
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    program = "echo first; while sleep 1; do echo again; done"
    worker["replicas"] = 1
    worker["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", program]
    visitor.go(create(running, job))
    page.get_by_role("link", name="Log of talks-worker-0").click()
    page.locator("#log", has_text="first").wait_for()
    page.locator("#log", has_text="again").wait_for()
    assert violations(page) == []
    page.get_by_role("link", name="Previous attempt").click()
    page.locator("#log i").first.wait_for()  # there is none, and the page says so
    visitor.shoot("log-previous")
    running.api.delete("/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/talks")


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
    page.get_by_role("heading", name="PyTorchJob default/ torch").wait_for()


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
    page.get_by_role("link", name="waiting").first.click()
    page.get_by_label("Kind").select_option("JointInferenceService.edgeai.io")
    page.wait_for_url("**/jobs?**kind=JointInferenceService.edgeai.io**")
    assert "state=waiting" in page.url
    page.get_by_label("Name", exact=True).press_sequentially("aits")
    page.wait_for_url("**q=aits**")
    playwright.expect(page.locator("tbody tr")).to_have_count(1)
    playwright.expect(page.get_by_label("Name", exact=True)).to_be_focused()
    page.get_by_role("link", name="default/waits").click()
    page.get_by_text("create the Model that the message names").first.wait_for()
    page.get_by_role("link", name="Nodes", exact=True).click()
    page.get_by_role("row", name="edge0").get_by_role("link", name="edge0").click()
    page.get_by_text("Holds all that it must").wait_for()
    page.locator("#namespace").select_option("default")
    page.wait_for_url("**/?namespace=default")


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
    page.get_by_text("Suspended: the pods of the job end").wait_for()
    page.get_by_role("button", name="Resume").wait_for()
    assert "done" not in page.url
    assert running.api.get(f"{path}/victim")["spec"]["runPolicy"]["suspend"] is True
    visitor.submit("Resume")
    page.get_by_role("button", name="Suspend").wait_for()
    page.get_by_label("Replicas").fill("1")
    visitor.submit("Scale")
    spec = running.api.get(f"{path}/victim")["spec"]
    assert spec["pytorchReplicaSpecs"]["Worker"]["replicas"] == 1
    page.get_by_label("Type the name").fill("victin")
    page.get_by_role("button", name="Delete").click()  # the browser says what is wrong
    assert page.evaluate("document.querySelector('[name=name]').validity.patternMismatch")
    page.get_by_label("Type the name").fill("victim")
    page.get_by_role("button", name="Delete").click()
    page.get_by_text("Deleted, with all that belongs to it").wait_for()
    page.wait_for_url("**/jobs")
    assert running.api.find(f"{path}/victim") is None


def test_who_is_not_logged_in_may_look_and_change_nothing(
    chromium: Any, running: Environment
) -> None:
    """On the local cluster, whose REST is open to this machine."""
    with window(chromium, running, SIZES["wide"]) as visitor:
        visitor.go(TORCH)
        visitor.page.get_by_role("heading", name="PyTorchJob default/ torch").wait_for()
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
        page.get_by_role("heading", name="JointInferenceService default/ waits").wait_for()
        assert visitor.faults == []


def test_focus_stays_while_the_page_changes(visitor: Visitor, running: Environment) -> None:
    visitor.go("/jobs")
    link = visitor.page.get_by_role("link", name="default/digits")
    link.focus()
    collection = "/apis/edgeai.io/v1alpha1/namespaces/default/jointinferenceservices"
    running.api.create(joint_inference("another"))
    visitor.page.get_by_role("link", name="default/another").wait_for()
    running.api.delete(f"{collection}/another")
    assert visitor.page.evaluate("document.activeElement.textContent") == "default/digits"
