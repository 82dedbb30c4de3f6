"""Reports the state of this worker to the LocalController of its node.

One daemon thread sends the reports. It keeps only the latest state, without a queue, and never
stops trying: after an outage of the LocalController the next report contains the whole state.
Reporting neither blocks nor fails the worker. The secret in LC_SERVER's path is not logged.
"""

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from edgeai import times
from edgeai.backoff import Backoff
from edgeai.worker.deadline import Deadline
from edgeai.worker.environment import LCServer, ReportEnvironment
from edgeai.worker.http_exchange import ExchangeError, HTTPPeer, Request

log = logging.getLogger(__name__)

Status = Literal["running", "completed", "failed"]
Info = TypeVar("Info")

POST_TIMEOUT_S: Final = 5.0
MAX_RESPONSE_BYTES: Final = 64 * 1024
NO_FACTS: Final[Mapping[str, Any]] = MappingProxyType({})


class ReportSchedule:
    """Plans at most one report in each period, heartbeats, and a back-off after failures. Pure: it
    takes and returns moments, in seconds.

    Args:
        period_s: least time between two reports
        heartbeat_s: most time between two reports, 0: no heartbeat
    """

    def __init__(self, *, period_s: float, heartbeat_s: float, backoff: Backoff) -> None:
        self._period_s = period_s
        self._heartbeat_s = heartbeat_s
        self._backoff = backoff
        self._is_changed = True  # the first report says that the worker has started
        self._is_requested = False
        self._not_before_s = -math.inf
        self._beat_s = math.inf

    def due_s(self) -> float:
        """The moment of the next report; inf: none until something changes."""
        if self._is_requested:
            return -math.inf
        if self._is_changed:
            return self._not_before_s
        return max(self._beat_s, self._not_before_s)

    def changed(self) -> None:
        self._is_changed = True

    def request_now(self) -> None:
        """Ask for one report now. The report does not wait for the period or for the back-off."""
        self._is_requested = True

    def started(self) -> None:
        """Call this when the sending of a report with the present state begins."""
        self._is_changed = self._is_requested = False

    def succeeded(self, now_s: float) -> None:
        self._backoff.reset()
        self._is_requested &= self._is_changed  # this report answers the request
        self._not_before_s = now_s + self._period_s
        self._beat_s = now_s + self._heartbeat_s if self._heartbeat_s else math.inf

    def failed(self, now_s: float, *, retry_after_s: float) -> None:
        self._is_changed = True
        self._not_before_s = now_s + self._backoff.next_s(at_least_s=retry_after_s)


class Output(msgspec.Struct, frozen=True, rename="camel"):
    task_info: Mapping[str, int | float | str]
    counts: Sequence[str]
    """The names in task_info of totals since this process started."""


class WorkerMessage(msgspec.Struct, frozen=True, rename="camel"):
    """Body of POST {LC_SERVER}/v1/workers/{worker}/status."""

    phase: str
    status: str
    instance: str
    sequence: int
    heartbeat_seconds: float
    output: Output


class ReportTarget(msgspec.Struct, frozen=True):
    """A worker, and the LocalController that gets the worker's reports."""

    server: LCServer
    worker: str

    @property
    def path(self) -> str:
        return f"{self.server.path}/v1/workers/{quote(self.worker, safe='')}/status"


class Reporter(Generic[Info]):
    """Sends a report at the start, after each change and as a heartbeat. Thread-safe.

    Args:
        phase: what this worker does: "inference", "train"
        info: the task info of the first report: a struct or mapping of numbers and texts, which
            the Reporter never changes in place
        counts: the names in the task info that are totals since this process started
        facts: texts and numbers that are part of the task info of each report
    """

    def __init__(
        self,
        target: ReportTarget,
        *,
        phase: str,
        info: Info,
        counts: Sequence[str] = (),
        facts: Mapping[str, Any] = NO_FACTS,
        period_s: float = 1.0,
        heartbeat_s: float = 10.0,
        backoff: Backoff | None = None,
    ) -> None:
        self._target = target
        self._peer = HTTPPeer(target.server.address, max_response_bytes=MAX_RESPONSE_BYTES)
        self._schedule = ReportSchedule(
            period_s=period_s,
            heartbeat_s=heartbeat_s,
            backoff=backoff or Backoff(base_s=0.5, max_s=15.0, floor_s=0.1),
        )
        self._heartbeat_s = heartbeat_s
        self._instance = secrets.token_hex(8)
        self._started_at = now_rfc3339()
        self._news = threading.Condition()  # guards the fields below
        self._phase, self._status = phase, "running"
        self._info = info
        self._counts = counts
        self._facts = facts
        self._updated_at = self._started_at
        self._version = 1  # version of the state; grows with each change
        self._acknowledged = 0  # newest version that the LocalController acknowledged
        self._sequence = 0
        self._is_withdrawn = False  # the LocalController no longer has this worker's task
        self._is_closed = False
        self._logged_problem = ""  # the last logged problem, "" when reports are accepted
        self._thread = threading.Thread(target=self._run, name="edgeai-reporter", daemon=True)
        self._thread.start()

    def change(
        self, change: Callable[[Info], Info], *, facts: Mapping[str, Any] | None = None
    ) -> None:
        """Replace the info by `change(info)`, and given facts, and report both. Returns at once."""
        with self._news:
            self._info = change(self._info)
            self._facts = self._facts if facts is None else facts
            self._note_change()

    @property
    def info(self) -> Info:
        with self._news:
            return self._info

    def flush(self, timeout_s: float) -> bool:
        """Report now. Returns: whether the LocalController acknowledged the present state in time.

        flush() returns early if the LocalController no longer has this worker's task.
        """
        deadline = Deadline(timeout_s)
        with self._news:
            version = self._version
            if self._acknowledged < version:
                self._is_withdrawn = False
                self._schedule.request_now()
                self._news.notify_all()
            self._news.wait_for(
                lambda: self._acknowledged >= version or self._is_withdrawn,
                timeout=deadline.left_s(),
            )
            return self._acknowledged >= version

    def close(self, timeout_s: float, *, status: Status = "running") -> bool:
        """Send a last report, which promises no further heartbeat. Returns: as flush()

        Args: status: "completed" or "failed" if the worker's work has ended
        """
        with self._news:
            if self._is_closed:
                return True
            self._heartbeat_s, self._status = 0.0, status
            self._note_change()
        is_acknowledged = self.flush(timeout_s)
        with self._news:
            self._is_closed = True
            self._news.notify_all()
        return is_acknowledged

    def _note_change(self) -> None:
        self._version += 1
        self._updated_at = now_rfc3339()
        self._schedule.changed()
        self._news.notify_all()

    def _run(self) -> None:
        while self._wait_until_due():
            with self._news:
                self._schedule.started()
                version, body = self._version, self._compose()
            outcome = self._post(body)
            with self._news:
                self._apply(version, outcome)
        self._peer.close()

    def _wait_until_due(self) -> bool:
        """Wait until a report is due. Returns: False if the Reporter was closed"""
        with self._news:
            while not self._is_closed:
                wait_s = self._schedule.due_s() - time.monotonic()
                if wait_s <= 0:
                    return True
                self._news.wait(None if math.isinf(wait_s) else wait_s)
        return False

    def _compose(self) -> bytes:
        self._sequence += 1
        times = {"startTime": self._started_at, "updateTime": self._updated_at}
        return msgspec.json.encode(
            WorkerMessage(
                phase=self._phase,
                status=self._status,
                instance=self._instance,
                sequence=self._sequence,
                heartbeat_seconds=self._heartbeat_s,
                output=Output(
                    {**msgspec.to_builtins(self._info), **self._facts, **times}, self._counts
                ),
            )
        )

    def _post(self, body: bytes) -> "_Outcome":
        headers = {"Content-Type": "application/json"}
        request = Request(method="POST", path=self._target.path, body=body, headers=headers)
        try:
            response = self._peer.exchange(request, Deadline(POST_TIMEOUT_S))
        except ExchangeError as error:
            return _Outcome(error.detail)
        except Exception as error:  # noqa: BLE001 - reports go on after any fault, also after a bug
            return _Outcome(type(error).__name__)
        if response.status == 200:
            return _Outcome("")
        answer = self._masked(response.body.decode(errors="replace"))[:200]
        problem = f"HTTP {response.status} {answer}"
        return _Outcome(problem, response.retry_after_s, is_unknown=response.status == 403)

    def _masked(self, text: str) -> str:
        secret = self._target.server.path.rpartition("/")[2]
        return text.replace(secret, "***") if secret else text

    def _apply(self, version: int, outcome: "_Outcome") -> None:
        now_s = time.monotonic()
        if outcome.problem:
            self._schedule.failed(now_s, retry_after_s=outcome.retry_after_s)
        else:
            self._acknowledged = version
            self._schedule.succeeded(now_s)
        # Before the first acknowledged report the task may still be on its way to the node.
        self._is_withdrawn = outcome.is_unknown and self._acknowledged > 0
        self._news.notify_all()
        self._log_change(outcome.problem)

    def _log_change(self, problem: str) -> None:
        """Log only changes, because in a long outage many attempts fail for one reason."""
        if problem == self._logged_problem:
            return
        if problem:
            log.warning("report not accepted, will go on trying: %s", problem)
        else:
            log.info("reports are accepted again")
        self._logged_problem = problem


class _Outcome(NamedTuple):
    """The outcome of one report."""

    problem: str
    """Why the report failed; "": the LocalController acknowledged the report."""
    retry_after_s: float = 0.0
    is_unknown: bool = False
    """The LocalController knows no task of this worker."""


def reporter_from(
    environment: ReportEnvironment,
    *,
    phase: str,
    info: Info,
    counts: Sequence[str] = (),
    facts: Mapping[str, Any] = NO_FACTS,
) -> Reporter[Info] | None:
    """Start a Reporter. Returns: None if LC_SERVER is not set"""
    if environment.lc_server is None:
        log.info("LC_SERVER is not set: nothing is reported")
        return None
    return Reporter(
        ReportTarget(environment.lc_server, environment.worker_name),
        phase=phase,
        info=info,
        counts=counts,
        facts=facts,
        period_s=environment.report_period_s,
        heartbeat_s=environment.heartbeat_s,
    )


def now_rfc3339() -> str:
    return times.rfc3339(times.utc_now(), "milliseconds")
