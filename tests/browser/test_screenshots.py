"""Makes the pictures of the console in docs/, and sees that those in docs/ still show its pages.

`make screenshots` writes them anew. A picture is out of date when the page has other headings and
labels than at the time of the picture; ages, names and numbers may differ.
"""

import json
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from edgeai.api.rollouts import Phase
from edgeai.cli import environment
from edgeai.cli.api import Object
from edgeai.cli.console import login_address
from edgeai.cli.environment import Environment
from edgeai.cli.system import CLOUD
from edgeai.demo.joint_inference import manifests, train
from tests.browser.conftest import playwright, window
from tests.browser.fleet import FleetConsole
from tests.browser.jobs import of_every_kind
from tests.globalmanager.rest.fleets import PAGE as FLEET

DOCS: Final = Path(__file__).parents[2] / "docs"
PICTURES: Final = DOCS / "pictures" / "console"
LABELS: Final = PICTURES / "labels.json"
IS_RENEWED: Final = "RENEW_SCREENSHOTS" in os.environ
MAX_BYTES: Final = 100 * 1024
DIGITS: Final = "/jobs/jointinferenceservices.edgeai.io/default/digits"
SITES: Final = {"cloud0": "centre", "edge0": "north", "edge1": "south"}
ZONE: Final = "topology.kubernetes.io/zone"
_STREAM_RATE: Final = 120.0  # images a second, so that the curve has several points


class Picture(NamedTuple):
    """What is shown, and how."""

    path: str
    size: tuple[int, int]
    is_dark: bool = False
    from_the_end: bool = False
    """The lower part of a long page."""
    of_a_fleet: bool = False
    """Of a service on more nodes than this machine could run."""


SHOWN: Final = {
    "overview": Picture("/", (1280, 660)),
    "jobs": Picture("/jobs", (1280, 640)),
    "job": Picture(DIGITS, (1280, 720)),
    "curve": Picture(DIGITS, (1280, 640), from_the_end=True),
    "nodes": Picture("/nodes", (1280, 540)),
    "rollout": Picture(FLEET, (1280, 880), of_a_fleet=True),
    "overview-narrow-dark": Picture("/", (360, 740), is_dark=True),
}


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """Jobs of the kinds beside that of the curve."""
    running = environment.up(tmp_path_factory.mktemp("edgeai") / "state")
    for node, site in SITES.items():
        running.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {ZONE: site}}})
    _create(running, [each for each in of_every_kind() if each["metadata"]["name"] != "digits"])
    yield running
    environment.down(running.state_dir)


@pytest.fixture(scope="module")
def rolling() -> Iterator[FleetConsole]:
    """A fleet in the third of four waves."""
    with FleetConsole(100).running() as console:
        for number in range(24):
            console.show(Phase.PROGRESSING, wave=3, hard=12 + number % 5 + number // 4)
        console.show(Phase.PROGRESSING, wave=3, waiting=4, broken=1, hard=19)
        yield console


def _create(running: Environment, objects: list[Object]) -> None:
    for object_ in objects:
        running.api.create(object_)


def _joint_inference(files: Path) -> list[Object]:
    """A real one, with images and models."""
    train.train(files)
    placement = manifests.Placement(
        files=files, edge_node="edge0", cloud_node=CLOUD, stream_rate=_STREAM_RATE
    )
    return manifests.objects(placement)


@pytest.fixture(scope="module")
def labels(
    busy: Environment,
    rolling: FleetConsole,
    chromium: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> Any:
    """Picture -> headings and labels of its page. The pictures are made on the way."""
    directory = PICTURES if IS_RENEWED else tmp_path_factory.mktemp("pictures")
    directory.mkdir(parents=True, exist_ok=True)
    example = _joint_inference(tmp_path_factory.mktemp("files"))
    with window(chromium, busy, (1280, 800)) as visitor:
        visitor.page.goto(login_address(busy.rest_url(), busy.api.token))
        _create(busy, example)  # now, because the curve begins when its page is opened
        visitor.page.get_by_role("link", name="Jobs", exact=True).click()
        visitor.page.get_by_role("link", name="default/digits").click()
        visitor.page.locator("#metrics dd", has_text="719").first.wait_for(timeout=60_000)
        found = {
            name: _shoot(visitor.page, picture, directory / f"{name}.png")
            for name, picture in SHOWN.items()
            if picture.path == DIGITS
        }
    for name, picture in SHOWN.items():
        if name in found:
            continue
        scheme = "dark" if picture.is_dark else "light"
        console = rolling if picture.of_a_fleet else busy
        with window(chromium, console, picture.size, color_scheme=scheme) as visitor:
            if not picture.of_a_fleet:
                visitor.page.goto(login_address(busy.rest_url(), busy.api.token))
            visitor.go(picture.path)
            found[name] = _shoot(visitor.page, picture, directory / f"{name}.png")
            assert visitor.faults == []
    if IS_RENEWED:
        LABELS.write_text(json.dumps(found, indent=1) + "\n")
    return found


def _shoot(page: Any, picture: Picture, file: Path) -> list[str]:
    playwright.expect(page.locator("#line")).to_have_text("live")
    page.set_viewport_size(dict(zip(("width", "height"), picture.size, strict=True)))
    page.evaluate(f"scrollTo(0, {'document.body.scrollHeight' if picture.from_the_end else 0})")
    if picture.of_a_fleet:
        playwright.expect(page.locator("#guard-curves canvas")).to_have_count(1)
    page.screenshot(path=file)
    told = page.locator("h2, h3, caption, thead th, nav a, summary, form button").all_inner_texts()
    return list(dict.fromkeys(" ".join(text.split()) for text in told if text.strip()))


def test_the_pictures_show_the_pages_of_today(labels: dict[str, list[str]]) -> None:
    assert labels == json.loads(LABELS.read_text()), "run: make screenshots"


@pytest.mark.parametrize("name", SHOWN)
def test_a_picture_is_small_and_as_wide_as_it_says(name: str) -> None:
    file = (PICTURES / f"{name}.png").read_bytes()
    assert len(file) < MAX_BYTES
    assert struct.unpack(">II", file[16:24]) == SHOWN[name].size


def test_every_picture_is_shown_and_every_shown_one_is_made() -> None:
    pages = [page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")]
    found = re.compile(r"pictures/console/([\w-]+)\.png")
    shown = {name for page in pages for name in found.findall(page)}
    assert shown == set(SHOWN) == {each.stem for each in PICTURES.glob("*.png")}
