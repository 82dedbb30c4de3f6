"""The documentation as a site: it builds, needs no other host, and shows what the pages say."""

import functools
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest

from tests.support.runtimes import python_with

ROOT: Final = Path(__file__).parents[2]
LOADS: Final = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}
LEFT: Final = re.compile(r"```|\]\(|^\s*(?:[-*]|\d+\.) |^\s*\|", re.MULTILINE)
"""Of Markdown that became text: a fence, a link, a list, a table."""
LOST: Final = ("nowhere.md", "cli.md#nowhere", "../common/nowhere.py")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    python_with("docs")
    directory = tmp_path_factory.mktemp("site")
    done = build(ROOT, directory)
    assert done.returncode == 0, done.stderr
    return directory


def build(checkout: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout / "docs" / "build.py"), str(directory)]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)


class Reader(HTMLParser):
    """What a browser loads for a page, and the text of the page's paragraphs outside of code."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.classes: set[str] = set()
        self.text = ""
        self._code = self._paragraph = 0
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.loaded += [found.get(LOADS.get(tag, "")) or ""]
        self.classes.update((found.get("class") or "").split())
        self._code += tag in ("code", "pre")
        self._paragraph += tag == "p"

    def handle_endtag(self, tag: str) -> None:
        self._code -= tag in ("code", "pre")
        self._paragraph -= tag == "p"

    def handle_data(self, data: str) -> None:
        if self._paragraph:
            self.text += "code" if self._code else data


@functools.cache
def pages(site: Path) -> list[tuple[str, Reader]]:
    return [(str(each.relative_to(site)), Reader(each)) for each in sorted(site.rglob("*.html"))]


def test_no_page_loads_anything_of_another_host(site: Path) -> None:
    read = pages(site)
    assert len(read) > 80
    foreign = [(name, each) for name, page in read for each in page.loaded if "//" in each]
    assert foreign == []
    # The theme's program would load what draws them from another host.
    assert [name for name, page in read if "mermaid" in page.classes] == []
    for sheet in site.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)[\"' ]*(?:https?:)?//\S+", sheet.read_text()) == []
    (configuration,) = re.findall(r"__config\".*?>(.*?)<", (site / "index.html").read_text())
    assert "//" not in configuration


def test_every_page_became_html(site: Path) -> None:
    left = [
        (name, match[0])
        for name, page in pages(site)
        for match in LEFT.finditer(page.text)
        if not name.startswith("source/")
    ]
    assert left == []


def test_the_rooms() -> None:
    text = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    rooms = re.findall(r"^  - (.*?):", text, re.MULTILINE)
    users = ["edgeai", "Tutorials", "How-to guides", "Reference", "Explanation"]
    assert rooms == [*users, "Development"]


def test_the_lock_has_hashes_and_no_address() -> None:
    lock = (ROOT / "requirements" / "docs.lock").read_text()
    assert "://" not in lock
    entries = re.split(r"^(?=[a-z])", lock, flags=re.MULTILINE)[1:]
    assert len(entries) > 20
    assert [each for each in entries if "--hash=sha256:" not in each] == []


def test_a_notebook_is_text_and_code(site: Path) -> None:
    page = site / "source" / "examples" / "notebooks" / "joint_inference.ipynb.html"
    assert "cell_type" not in page.read_text()
    assert len(Reader(page).text.split()) > 50


def test_the_search_finds_pages_for_users_and_no_decision(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text())
    pages = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"install.html", "fields/pytorchjob.html", "adding-a-kind.html"} <= pages
    assert [page for page in pages if page.startswith("decisions/") or page == "proofs.html"] == []
    assert (site / "decisions" / "0028-the-site.html").exists()


FOUND: Final = {
    "resume a job": "cli.html#suspend-and-resume-a-job",
    "GPU": "gpus.html",
    "CrashLoopBackOff": "troubleshooting.html#a-job-does-not-run",
    "python function": "tutorials/your-own-functions.html",
    "pod": "kubernetes-in-short.html",
    "namespace": "kubernetes-in-short.html",
    "kubectl": "kubernetes-in-short.html",
}
"""What users look for -> the beginning of the first place that the search names."""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node on the PATH")
def test_the_search_leads_users_to_what_they_look_for(site: Path) -> None:
    command = ["node", str(Path(__file__).with_name("search.js")), str(site), *FOUND]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    first = [json.loads(line)[0] for line in done.stdout.splitlines()]
    wrong = [
        (query, place)
        for (query, expected), place in zip(FOUND.items(), first, strict=True)
        if not place.startswith(expected)
    ]
    assert wrong == []


def test_each_page_has_a_title_of_its_own(site: Path) -> None:
    texts = [page.read_text() for page in site.rglob("*.html") if page.stem != "404"]
    titles = Counter(text.partition("<title>")[2].partition("</title>")[0] for text in texts)
    assert [title for title, number in titles.items() if number > 1] == []


def test_every_page_of_docs_is_in_the_site(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        name = "index" if page.stem == "README" else page.stem
        assert (site / page.relative_to(ROOT / "docs").with_name(f"{name}.html")).exists(), page


def test_all_that_is_wrong_fails(tmp_path: Path) -> None:
    python_with("docs")
    shutil.copytree(ROOT, tmp_path / "copy", ignore=_more_than_the_docs)
    docs = tmp_path / "copy" / "docs"
    (docs / "new.md").write_text("# A page without a place\n")
    with (docs / "glossary.md").open("a") as file:
        file.writelines(f"\n[lost]({target})\n" for target in LOST)
    done = build(tmp_path / "copy", tmp_path / "site")
    assert done.returncode != 0
    # Each warning fails a build.
    assert f"Aborted with {1 + len(LOST)} warnings" in done.stdout
    assert [name for name in ("new.md", *LOST) if name not in done.stderr] == []


def _more_than_the_docs(directory: str, names: list[str]) -> set[str]:
    """What a build does not need: hidden files, and what other programs made."""
    return {name for name in names if name.startswith((".", "__pycache__")) or name == "build"}
