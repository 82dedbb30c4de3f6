"""edgeai on the local cluster with a job of every kind, and a browser that looks at it."""

import http
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli import environment
from edgeai.cli.api import Object, collection_of
from edgeai.cli.console import login_address
from edgeai.cli.environment import Environment
from tests.browser.chromium import CHROMIUM, FLAGS
from tests.browser.fleet import FleetConsole
from tests.browser.jobs import of_every_kind
from tests.support.waiting import PATIENCE_S, eventually

playwright = pytest.importorskip("playwright.sync_api", reason="make browser-test installs it")
# Its own 5 s say how fast a page has to be. Here a deadline is when to give up, as everywhere.
playwright.expect.set_options(timeout=PATIENCE_S * 1000)

SCREENSHOTS: Final = Path(__file__).parents[2] / "build" / "screenshots"
SERVICES: Final = "/apis/edgeai.io/v1alpha1/namespaces/default/jointinferenceservices"
SIZES: Final = {"wide": (1280, 900), "narrow": (360, 740)}
SCHEMES: Final = ("light", "dark")


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    state_dir = tmp_path_factory.mktemp("edgeai") / "state"
    running = environment.up(state_dir)
    for object_ in of_every_kind():
        create(running, object_)
    yield running
    environment.down(state_dir)


def create(running: Environment, object_: Object) -> str:
    """An object that the GlobalManager knows: before that its page is not found, and says so in the
    console of the browser. Returns: the path of its page
    """
    collection = collection_of(object_)
    running.api.create(object_)
    group, plural = collection.split("/")[2], collection.rsplit("/", 1)[1]
    metadata = object_["metadata"]
    path = f"/jobs/{plural}.{group}/{metadata['namespace']}/{metadata['name']}"

    def is_known() -> bool:
        try:
            with urllib.request.urlopen(running.rest_url() + path, timeout=PATIENCE_S) as answer:
                return bool(answer.status == http.HTTPStatus.OK)
        except OSError as error:
            raise AssertionError(str(error)) from error

    eventually(f"the page {path}", is_known)
    return path


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if not Path(CHROMIUM).exists():
        pytest.skip(f"{CHROMIUM} is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


class Visitor:
    """A browser window that notes what no page may do."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.faults: list[str] = []
        page.set_default_timeout(PATIENCE_S * 1000)
        page.on("console", self._note_message)
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("request", self._note_request)

    def _note_message(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text}")

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.faults.append(f"request to {request.url}")

    def go(self, path: str) -> None:
        response = self.page.goto(self.url + path)
        assert response.status == 200, f"{path}: {response.status}"

    def submit(self, button: str) -> None:
        """Press the button of a form, until the page that answers is there. What is typed before
        that is typed into the page of before.
        """
        with self.page.expect_navigation():
            self.page.get_by_role("button", name=button).click()

    def shoot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


@pytest.fixture(params=SIZES)
def visitor(request: pytest.FixtureRequest, running: Environment, chromium: Any) -> Iterator[Any]:
    """Logged in, in a window of each size."""
    with window(chromium, running, SIZES[request.param]) as visitor:
        visitor.page.goto(login_address(running.rest_url(), running.api.token))
        yield visitor
        assert visitor.faults == []


class window:  # noqa: N801 - a context manager
    def __init__(
        self, chromium: Any, running: Environment | FleetConsole, size: tuple[int, int], **more: Any
    ):
        self._context = chromium.new_context(
            viewport={"width": size[0], "height": size[1]}, reduced_motion="reduce", **more
        )
        self._url = running.rest_url()

    def __enter__(self) -> Visitor:
        return Visitor(self._context.new_page(), self._url)

    def __exit__(self, *_: object) -> None:
        self._context.close()


def report(running: Environment, page: Any, name: str, seen: int) -> None:
    """Write what an edge worker has counted, and wait until the page shows the total. The entry of
    the worker stays, as after a true report, so that each later plan finds the same total.
    """
    status = {
        "workers": {f"{name}-edge-0": {"taskInfo": {"seen": seen}}},
        "metrics": [{"key": "seen", "value": str(seen)}],
    }
    running.api.patch(f"{SERVICES}/{name}/status", {"status": status})
    playwright.expect(page.locator("#metrics dd")).to_have_text(str(seen))
