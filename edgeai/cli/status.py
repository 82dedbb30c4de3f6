"""The tables of `edgeai status`: nodes, sessions, tasks, jobs and scalers.

The data is from the REST of the GlobalManager.
"""

import http.client
import urllib.error
import urllib.request
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table
from rich.text import Text

from edgeai import times
from edgeai.cli.api import Object
from edgeai.client.objects import JOB_TYPES
from edgeai.client.words import kind_word
from edgeai.errors import EdgeAIError
from edgeai.faults.summary import (
    change_of,
    faults_of,
    in_one_line,
    phase_of,
    progress_of,
    waits_of,
)
from edgeai.faults.tones import contact_of, tone_of
from edgeai.text import printable, shortened

Row = tuple[str | Text, ...]
JOB_PLURALS: Final = tuple(dict.fromkeys(type_.plural for type_ in JOB_TYPES))
SCALER_PLURALS: Final = ("scaleouts", "scaleins")
TIMEOUT_S: Final = 5.0
FOLDED: Final = ("PROGRESS", "")  # these columns fold on a narrow terminal
FOLDED_WIDTH: Final = 12
MAX_REASON_CHARS: Final = 120  # in a table; `edgeai describe` has the whole text


class RestUnavailable(EdgeAIError):
    """Args: url: the base URL of the REST"""

    def __init__(self, url: str, problem: str) -> None:
        super().__init__(f"the GlobalManager does not answer at {url}: {problem}")


def fetch(rest_url: str, path: str) -> list[Object]:
    """The items of a list in the GlobalManager's REST; none of a resource that it does not serve.

    Raises: RestUnavailable
    """
    url = f"{rest_url}{path}"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
            items: list[Object] = msgspec.json.decode(response.read())["items"]
            return items
    except urllib.error.HTTPError as error:
        if error.code == http.HTTPStatus.NOT_FOUND:
            return []
        raise RestUnavailable(rest_url, str(error)) from error
    except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
        raise RestUnavailable(rest_url, str(getattr(error, "reason", error))) from error


class Status(msgspec.Struct, frozen=True):
    """What `edgeai status` shows. `-o json` prints it as it is."""

    nodes: list[Object]
    """As the GlobalManager's REST tells them. A field is null where the source does not know it."""
    jobs: list[Object]
    scalers: list[Object]
    unknown: list[str] = []
    """What could not be read, and why."""

    def in_namespace(self, namespace: str) -> "Status":
        """With the jobs and scalers of this namespace; "" for all."""

        def of(objects: list[Object]) -> list[Object]:
            return [one for one in objects if namespace in ("", one["metadata"]["namespace"])]

        return msgspec.structs.replace(self, jobs=of(self.jobs), scalers=of(self.scalers))


def from_rest(rest_url: str) -> Status:
    """Raises: RestUnavailable"""
    jobs = [job for plural in JOB_PLURALS for job in fetch(rest_url, f"/api/v1/{plural}")]
    scalers = [one for plural in SCALER_PLURALS for one in fetch(rest_url, f"/api/v1/{plural}")]
    return Status(fetch(rest_url, "/api/v1/nodes"), jobs, scalers)


def page(status: Status) -> Group:
    now = times.utc_now()
    tables = [nodes_table(status.nodes, now), jobs_table(status.jobs, now)]
    return Group(*tables, *([scalers_table(status.scalers, now)] if status.scalers else []))


def nodes_table(nodes: list[Object], now: datetime) -> Table:
    headers = ("NODE", "SESSION", "SINCE", "TASKS", "LAST REPORT")
    return table("nodes", headers, [_node_row(node, now) for node in nodes])


def _node_row(node: Object, now: datetime) -> Row:
    session: Object = node["session"] or {}
    tasks, desired = node["tasksHeld"], node["tasksDesired"]
    return (
        node["name"],
        _session_text(node),
        age_text(node["since"], now),
        f"{_number(tasks)}/{_number(desired)}",
        age_text(session.get("lastReportAt"), now),
    )


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _session_text(node: Object) -> Text:
    if node["connected"] is None:
        return Text("?", style="dim")
    # A GlobalManager of an earlier release does not say which nodes are at the edge.
    is_edge = node.get("isEdge", node["tasksDesired"] != 0)
    is_expected = is_edge or node["since"] is not None
    word, tone = contact_of(is_connected=node["connected"], is_expected=is_expected)
    return Text(word, style=tone.style)


def jobs_table(jobs: list[Object], now: datetime) -> Table:
    rows = [(word_of(job), _shown_name(job), *job_cells(job, now)) for job in jobs]
    return table("jobs", ("KIND", "JOB", "PHASE", "PROGRESS", "AGE", ""), rows)


def job_cells(job: Object, now: datetime) -> tuple[Text, str, str, Text]:
    """Phase, progress, age, and in short what the job waits for."""
    status = job.get("status") or {}
    phase = phase_of(status)
    return (
        Text(phase, style=tone_of(phase, faults_of(job)).style),
        progress_of(status) or "-",
        age_text(job["metadata"]["creationTimestamp"], now),
        Text(shortened(in_one_line(waits_of(job)), MAX_REASON_CHARS), style="yellow"),
    )


def scalers_table(scalers: list[Object], now: datetime) -> Table:
    """The ScaleOuts and ScaleIns, the oldest first, as their jobs execute them."""
    ordered = sorted(scalers, key=lambda one: str(one["metadata"]["creationTimestamp"]))
    headers = ("SCALER", "JOB", "WORKERS", "PHASE", "AGE", "")
    return table("scalers", headers, [_scaler_row(one, now) for one in ordered])


def _scaler_row(scaler: Object, now: datetime) -> Row:
    spec, status = scaler.get("spec") or {}, scaler.get("status") or {}
    phase = str(status.get("phase") or "-")
    message = "" if phase == "ScaleSucceeded" else str(status.get("message") or "")
    return (
        f"{_shown_name(scaler)} ({scaler['kind']})",
        str((spec.get("selector") or {}).get("name") or "-"),
        change_of(scaler["kind"], scaler) or "-",
        Text(phase, style=tone_of(phase, ()).style),
        age_text(scaler["metadata"]["creationTimestamp"], now),
        Text(message, style="yellow"),
    )


class _UncutTable(Table):
    """A table that is never cut. If necessary, the table is wider than the terminal."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        _, right, _, left = self.padding
        least = sum((column.min_width or 0) + left + right for column in self.columns)
        width = max(least, options.max_width)
        return super().__rich_console__(console, options.update(max_width=width))


def table(title: str, headers: tuple[str, ...], rows: Sequence[Row]) -> Table:
    """A table whose columns are as wide as their content, except for the columns in FOLDED."""
    table = _UncutTable(title=title, box=None)
    texts = [tuple(map(_cell, row)) for row in rows]
    for header, *cells in zip(headers, *texts, strict=True):
        width = max(cell_len(str(cell)) for cell in (header, *cells))
        if header in FOLDED:
            table.add_column(header, overflow="fold", min_width=min(width, FOLDED_WIDTH))
        else:
            table.add_column(header, no_wrap=True, min_width=width)
    for row in texts:
        table.add_row(*row)
    return table


def _cell(content: str | Text) -> Text:
    """The cell without control characters. A `str` would be read as the markup of rich."""
    style = content.style if isinstance(content, Text) else ""
    return Text(printable(str(content)), style=style)


def _shown_name(job: Object) -> str:
    return f"{job['metadata']['namespace']}/{job['metadata']['name']}"


def word_of(object_: Object) -> str:
    """The word for the object's kind, as `edgeai get` takes it."""
    return kind_word(object_["kind"], object_["apiVersion"].partition("/")[0])


def age_text(time: str | None, now: datetime) -> str:
    """The time since `time`; "-" for none. Raises: ValueError"""
    if not time:
        return "-"
    return times.age(times.parse(time), now)
