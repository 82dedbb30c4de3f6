"""The documentation as a site, as a reader meets it in a browser without a network."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest

from tests.browser.conftest import SCHEMES, SCREENSHOTS, SIZES, Visitor
from tests.browser.test_console import violations
from tests.docs.test_site import ROOT, build
from tests.support.runtimes import python_with

PAGES: Final = {
    "home": "index.html",
    "tutorial": "tutorials/joint-inference.html",
    "fields": "fields/trainingjob.html",
    "install": "install.html",
    "source": "source/common/wire.py.html",
    "states": "kinds/trainingjob.html",
    "console": "console.html",
}


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    python_with("docs")
    directory = tmp_path_factory.mktemp("site")
    done = build(ROOT, directory)
    assert done.returncode == 0, done.stderr
    handler = partial(_Quiet, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture(params=[f"{size}-{scheme}" for size in SIZES for scheme in SCHEMES])
def reader(request: pytest.FixtureRequest, address: str, chromium: Any) -> Iterator[Visitor]:
    """A window of each size and scheme, whose requests all go to the site."""
    size, _, scheme = request.param.partition("-")
    width, height = SIZES[size]
    viewport = {"width": width, "height": height}
    context = chromium.new_context(viewport=viewport, color_scheme=scheme)
    visitor = Visitor(context.new_page(), address)
    yield visitor
    context.close()
    assert visitor.faults == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_asks_no_other_host(
    reader: Visitor, name: str, request: pytest.FixtureRequest
) -> None:
    reader.go(PAGES[name])
    reader.page.locator("article h1").wait_for()
    assert reader.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert violations(reader.page) == []
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    window = request.node.callspec.params["reader"]
    reader.page.screenshot(path=SCREENSHOTS / f"site-{name}-{window}.png")


def test_a_word_is_found(address: str, chromium: Any) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    visitor = Visitor(context.new_page(), address)
    visitor.go("index.html")
    visitor.page.get_by_placeholder("Search").fill("slotsPerWorker")
    visitor.page.locator(".md-search-result__item a").first.click()
    visitor.page.wait_for_url("**/*trainingjob.html*")
    context.close()
    assert visitor.faults == []
