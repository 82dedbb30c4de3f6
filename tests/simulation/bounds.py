"""What a stranger may make grow, and how far (`oracle`, promise I10)."""

from collections.abc import Iterator
from typing import Final

from common.session import WINDOW
from globalmanager.core import Core
from globalmanager.edge.sessions.cloud_session import MAX_UNACKNOWLEDGED_REPORTS
from globalmanager.edge.sessions.driver import MAX_ANSWERS
from localcontroller.ledger.attempts import MAX_WORKER_PROCESSES
from tests.simulation.edge import MAX_BYTES, Controller
from tests.simulation.world import Process

MAX_TASKS: Final = 400
"""Of asyncio in one process. A replica has 64 writers of its inbox, informers and sessions."""
MAX_OUT: Final = MAX_ANSWERS + 2 * WINDOW
"""Messages that a session has not given to its connection."""
_SESSIONS_OF_A_NODE: Final = 16
"""Sessions of one node, one after the other, whose reports still wait. Each may add one report
before the inbox lets it wait."""


def beyond(core: Core, process: Process) -> Iterator[str]:
    """The bounds of a GlobalManager that are broken."""
    inbox = core.inbox
    limits = inbox._limits
    yield from _tasks(process)
    for node, count in inbox._reports_of.items():
        if count > limits.reports_per_node + _SESSIONS_OF_A_NODE:
            yield f"{count} reports of {node} wait"
    if inbox._size_bytes > limits.total_bytes + 2**16:
        yield f"the reports that wait have {inbox._size_bytes} bytes"
    for driver in (*core.sessions._open.values(), *core.sessions._opening.values()):
        session = driver._session
        if session._unacknowledged_reports > MAX_UNACKNOWLEDGED_REPORTS:
            yield f"{driver.node} has {session._unacknowledged_reports} reports to acknowledge"
        if session._window.unacknowledged > WINDOW:
            yield f"{driver.node} has {session._window.unacknowledged} frames in flight"
        if len(session._out) > MAX_OUT:
            yield f"{len(session._out)} messages to {driver.node} wait"


def beyond_at_edge(controller: Controller, *, has_written: bool) -> Iterator[str]:
    """The bounds of a LocalController that are broken.

    Args: has_written: whether its disk has synced a file since the last call
    """
    yield from _tasks(controller.process)
    ledger = controller.ledger
    if has_written and ledger is not None and ledger.file.used_bytes > MAX_BYTES:
        yield f"the ledger has {ledger.file.used_bytes} bytes"


def beyond_in_ledger(controller: Controller) -> Iterator[str]:
    """As `beyond_at_edge`; reads the whole ledger."""
    rows = controller.rows() or {}
    processes: dict[tuple[str, str], int] = {}
    for uid, worker, *_ in rows.get("processes", ()):
        processes[uid, worker] = processes.get((uid, worker), 0) + 1
    for (_, worker), count in processes.items():
        if count > MAX_WORKER_PROCESSES:
            yield f"the ledger keeps {count} processes of {worker}"


def _tasks(process: Process) -> Iterator[str]:
    if len(process._tasks) > MAX_TASKS:
        yield f"{len(process._tasks)} asyncio tasks"
