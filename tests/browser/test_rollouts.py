"""A new version on its way to a fleet, as a person watches and changes it."""

from collections.abc import Iterator
from typing import Any

import pytest

from edgeai.api.rollouts import ModelVersion, Phase
from edgeai.cli.environment import Environment
from tests.browser.conftest import SCHEMES, SERVICES, SIZES, Visitor, create, playwright, window
from tests.browser.fleet import FleetConsole
from tests.browser.jobs import joint_inference
from tests.browser.test_console import violations
from tests.globalmanager.rest.fleets import PAGE
from tests.support.manifests import manifest
from tests.support.waiting import eventually

LABELS = {"camera": "yes"}
LATER = ModelVersion(generation=8, url="https://models.example.org/8.onnx", number=8)
MODELS = "/apis/edgeai.io/v1alpha1/namespaces/default/models"


@pytest.fixture(scope="module")
def fleet() -> Iterator[FleetConsole]:
    with FleetConsole(5000).running() as console:
        yield console


@pytest.fixture(params=SIZES)
def viewer(request: pytest.FixtureRequest, fleet: FleetConsole, chromium: Any) -> Iterator[Any]:
    fleet.show(Phase.PROGRESSING)
    with window(chromium, fleet, SIZES[request.param]) as visitor:
        visitor.go(PAGE)
        playwright.expect(visitor.page.locator("#line")).to_have_text("live")
        yield visitor
        assert visitor.faults == []


def looked_at(visitor: Visitor, name: str) -> None:
    """The page fits and can be read by everybody, in each scheme."""
    page, width = visitor.page, visitor.page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        visitor.shoot(f"rollout-{name}-{width}-{scheme}")
        assert violations(page) == []


def test_a_version_on_its_way_is_followed_live(viewer: Visitor, fleet: FleetConsole) -> None:
    page = viewer.page
    steps = page.get_by_role("list", name="Waves").get_by_role("listitem")
    playwright.expect(steps).to_have_count(4)
    playwright.expect(page.locator("[aria-current=step]")).to_contain_text("nodes serve")
    fleet.show(Phase.PROGRESSING, broken=2, waiting=30, hard=25)
    playwright.expect(page.locator(".cells .cell.bad")).to_have_count(2)
    playwright.expect(page.get_by_text("30 waiting for version 7")).to_be_visible()
    curve = page.locator("#guard-curves .curve")
    eventually("a curve", lambda: int(curve.get_attribute("data-points") or 0) > 2)
    playwright.expect(curve).to_have_attribute("data-newest", "0.25")
    playwright.expect(page.get_by_text("and must be < 0.3")).to_be_visible()
    cell = page.locator(".cells .cell.bad").first
    cell.focus()
    shown = "cell => getComputedStyle(cell, '::after').content"
    assert "unable to load version 7" in cell.evaluate(shown)
    looked_at(viewer, "under-way")


def test_a_map_is_one_stop_of_the_keyboard(viewer: Visitor) -> None:
    page = viewer.page
    cells = page.locator(".map .cell")
    cells.first.focus()
    for key, number in (("ArrowRight", 1), ("ArrowDown", 2), ("ArrowLeft", 1), ("End", -1)):
        page.keyboard.press(key)
        playwright.expect(cells.nth(number)).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    playwright.expect(cells.first).to_be_focused()
    page.keyboard.press("Tab")
    assert not page.evaluate("Boolean(document.activeElement.closest('.map'))")


def test_the_past_of_a_former_version_that_comes_late_is_not_drawn(
    fleet: FleetConsole, chromium: Any
) -> None:
    fleet.show(Phase.PROGRESSING)
    with window(chromium, fleet, SIZES["wide"]) as visitor:
        page = visitor.page
        asked: list[Any] = []
        page.route("**/guard*", lambda route: asked.append(route))
        visitor.go(PAGE)
        playwright.expect(page.locator("#guard")).to_contain_text("hard of version 7")
        page.wait_for_function("document.querySelectorAll('#guard-curves .curve').length")
        fleet.show(Phase.PROGRESSING, version=LATER)
        playwright.expect(page.locator("#guard")).to_contain_text("hard of version 8")
        now = page.evaluate("Date.now() / 1000")
        series = {"hard of version 7": [0.2, 0.2]}
        with page.expect_response("**/guard*"):
            past = {"now": now, "note": "kept", "times": [now - 9, now], "series": series}
            asked[0].fulfill(json=past)
        page.evaluate("new Promise(done => setTimeout(() => requestAnimationFrame(done), 100))")
        curves = page.locator("#guard-curves .curve").all()
        assert [one.get_attribute("data-key") for one in curves] == ["hard of version 8"]
        assert visitor.faults == []


def test_a_version_that_was_taken_back_says_why(viewer: Visitor, fleet: FleetConsole) -> None:
    page = viewer.page
    # A curve has two points, and none comes after the end.
    playwright.expect(page.locator("#guard-curves canvas")).to_have_count(1)
    fleet.show(Phase.ROLLED_BACK)
    present = page.locator("[aria-current=step]")
    playwright.expect(present).to_have_text("10% taken back")
    message = "hard is 0.4127 of 5210 samples with version 7, and must be < 0.3"
    playwright.expect(page.locator("dd", has_text=message)).to_be_visible()
    playwright.expect(page.locator(".cells .cell.waiting")).to_have_count(0)
    playwright.expect(page.locator("#guard-curves canvas")).to_have_count(1)
    looked_at(viewer, "taken-back")


def cameras(name: str) -> Any:
    service = joint_inference(name, model=f"{name}-model")
    edge = service["spec"]["edgeWorker"]
    del edge["template"]["spec"]["nodeName"]
    edge |= {"perNode": True, "nodeSelector": LABELS}
    edge["model"]["hotUpdate"] = True
    service["spec"]["rollout"] = {"waves": ["1"], "promote": "manual"}
    return service


def test_a_rollout_is_paused_resumed_promoted_and_taken_back(
    visitor: Visitor, running: Environment, request: pytest.FixtureRequest
) -> None:
    """Each button is there while it can do something."""
    name, page = f"cameras-{request.node.callspec.params['visitor']}", visitor.page
    for node in ("edge0", "edge1"):
        running.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": LABELS}})
    content = {"url": "http://models.example.org/1.npz"}
    create(running, manifest("edgeai.io/v1alpha1 Model", f"{name}-model", "default", spec=content))
    visitor.go(create(running, cameras(name)))
    buttons = page.locator(".actions button:visible")
    playwright.expect(page.get_by_text("every node gets version 1").first).to_be_visible()
    playwright.expect(buttons).to_have_text(["Pause rollout", "Delete"])
    visitor.submit("Pause rollout")
    playwright.expect(page.get_by_text("Paused: no further wave begins.")).to_be_visible()
    playwright.expect(buttons).to_have_text(["Resume rollout", "Delete"])
    content = {"url": "http://models.example.org/2.npz"}
    running.api.patch(f"{MODELS}/{name}-model", {"spec": content})
    playwright.expect(page.get_by_text("held by spec.rollout.paused").first).to_be_visible()
    offers = ["Resume rollout", "Promote rollout", "Roll back", "Delete"]
    playwright.expect(buttons).to_have_text(offers)
    assert page.locator("[aria-current=step]").count() == 0
    visitor.submit("Resume rollout")
    present = page.locator("[aria-current=step]")
    playwright.expect(present).to_have_text("1 0 of 1 nodes serve")
    visitor.submit("Promote rollout")
    playwright.expect(present).to_have_text("all 0 of 2 nodes serve")
    visitor.submit("Roll back")
    playwright.expect(present).to_have_text("all taken back")
    playwright.expect(buttons).to_have_text(["Pause rollout", "Delete"])
    assert violations(page) == []
    running.api.delete(f"{SERVICES}/{name}")
    running.api.delete(f"{MODELS}/{name}-model")
