"""What the command, the console and the conditions say first of one job."""

import html
import re
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from typer.testing import CliRunner

from edgeai.cli.api import Object, collection_of
from edgeai.cli.main import app
from globalmanager.rest.console.board import section_of
from tests.support.waiting import PATIENCE_S
from tests.ways.drafts import Draft
from tests.ways.table import Way

ALL_IS_WELL: Final = "goes on by itself"
_TAG: Final = re.compile(r"<[^>]*>")


class Site(NamedTuple):
    """Where the jobs of a cluster are looked at."""

    kubeconfig: Path
    console: str
    """The URL of the console."""
    get: Callable[[str], Object]
    """Reads an object of the Kubernetes API by its path."""


class Looks(NamedTuple):
    """The first line of each place that tells what a job waits for, and all that they say."""

    described: str
    overview: str
    page: str
    status: tuple[str, ...]
    """Reason and message of the conditions, and the message of a scaler."""
    remedies: tuple[str, str, str]
    """What to do: by the description, the overview and the page."""
    description: str
    everything: str
    """Description, overview and page."""

    @property
    def first_lines(self) -> dict[str, str]:
        return {"describe": self.described, "overview": self.overview, "page": self.page}


def look(site: Site, draft: Draft, *, is_calm: bool = False) -> Looks:
    """Args: is_calm: the row is that of the list of its kind, not of those that need attention

    Raises: ApiError; OSError when the console does not answer"""
    object_ = site.get(path_of(draft))
    description = _description(site, draft)
    section = section_of(object_["kind"]) if is_calm else ""
    rows = _get(site, f"/{section}?namespace={draft.namespace}")
    page = _get(site, _page_path(object_))
    overview, to_do = _row(rows, object_["metadata"]["uid"])
    advice, page_to_do = _advice(page)
    status = object_.get("status") or {}
    conditions = status.get("conditions") or []
    return Looks(
        described=_first(description, "waits for") or _first(description, "why it failed"),
        overview=overview,
        page=advice,
        status=(
            *(f"{one.get('reason')}: {one.get('message')}" for one in conditions),
            str(status.get("message") or ""),
        ),
        remedies=(_first(description, "what to do"), to_do, page_to_do),
        description=description,
        everything="\n".join((description, _text(rows), _text(page))),
    )


def path_of(draft: Draft) -> str:
    """Where the API has the object that is looked at."""
    return f"{collection_of(draft.object)}/{draft.object['metadata']['name']}"


def _description(site: Site, draft: Draft) -> str:
    words = ["describe", draft.object["metadata"]["name"], "-n", draft.namespace]
    result = CliRunner().invoke(app, [*words, "--kubeconfig", str(site.kubeconfig)])
    return result.output


def _first(text: str, title: str) -> str:
    """The first entry of a list of `edgeai describe`."""
    _, _, rest = f"\n{text}".partition(f"\n{title}\n- ")
    return rest.partition("\n")[0]


def _get(site: Site, path: str) -> str:
    request = urllib.request.Request(site.console + path, headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        text: str = answer.read().decode()
    return text


def _page_path(object_: Object) -> str:
    group = object_["apiVersion"].partition("/")[0]
    metadata = object_["metadata"]
    plural = object_["kind"].lower() + "s"
    return f"/jobs/{plural}.{group}/{metadata['namespace']}/{metadata['name']}"


def _row(text: str, uid: str) -> tuple[str, str]:
    """(why, what to do) of the job's row in the overview."""
    _, _, rest = text.partition(f'<tr id="job-{uid}"')
    _, _, cell = rest.partition("</tr>")[0].partition('<td data-label="Why">')
    return _split(cell)


def _advice(text: str) -> tuple[str, str]:
    """(what it waits for, what to do) of the job's page."""
    _, _, rest = text.partition('<section class="advice')
    _, _, section = rest.partition("</section>")[0].partition("</h2>")
    return _split(section)


def _split(part: str) -> tuple[str, str]:
    why, _, remedy = part.partition('class="remedy">')
    return _text(why.rpartition("<")[0] if remedy else why), _text(remedy)


def _text(part: str) -> str:
    return html.unescape(_TAG.sub(" ", part)).strip()


def wrong(found: Looks, way: Way, draft: Draft) -> list[str]:
    """What the first lines lack."""
    names = {"culprit": draft.culprit, "namespace": draft.namespace}
    words = [word.format(**names) for word in way.words]
    told = dict(found.first_lines)
    if way.has_condition:
        told["status"] = _best(found.status, words)
    lacks = [
        f"{place}: {line!r} lacks {word!r}"
        for place, line in told.items()
        for word in words
        if word.casefold() not in line.casefold()
    ]
    places = zip(found.first_lines, found.remedies, strict=True)
    if way.has_remedy:
        lacks += [f"{place}: does not say what to do" for place, remedy in places if not remedy]
    lacks += [f"{ALL_IS_WELL!r} is said"] * (ALL_IS_WELL in found.everything)
    is_logged = way.log.casefold() in found.description.casefold()
    return lacks + [f"describe: does not show the log: {way.log!r}"] * (not is_logged)


def _best(lines: Iterable[str], words: Sequence[str]) -> str:
    """The line with most of the words."""

    def hits(line: str) -> int:
        return sum(word.casefold() in line.casefold() for word in words)

    return max(lines, key=hits, default="")
