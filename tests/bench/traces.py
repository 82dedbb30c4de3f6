"""What traces cost on the way of a report through the GlobalManager's inbox.

The real inbox of a process of its own, whose writes take no time, so that nothing hides the cost:
without an endpoint, and with a collector. They take turns, so that a noisy moment falls on both.

    python -m tests.bench.traces ENDPOINT    one process, its figures as JSON; "": without
"""

import asyncio
import json
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CollectorRegistry

from common import wire
from edgeai.ids import WorkerName
from globalmanager.edge.metrics import EdgeMetrics
from globalmanager.edge.sessions.desired_sets import DesiredSets
from globalmanager.edge.sessions.inbox import Inbox
from globalmanager.traces import NO_TRACES, TaskSpans
from tests.bench.process import answer_of, start
from tests.globalmanager.edge.world import A, Statuses, assignment, key, report_body, serving, uid

ROUNDS: Final = 5
TASKS: Final = 600  # their spans, three of each, are what waits for a collector at most
LATER: Final = 10  # reports of each task after its first one
WORKER: Final = WorkerName("w")


def measure() -> dict[str, Any]:
    """Figures of docs/performance.md, "Traces"."""
    with _collector() as url:
        modes = {"off": "", "on": url}
        rounds = [
            {name: answer_of(start("traces", url)) for name, url in modes.items()}
            for _ in range(ROUNDS)
        ]
    return {
        name: {
            figure: round(statistics.median(each[name][figure] for each in rounds), 1)
            for figure in rounds[0][name]
        }
        for name in modes
    }


# ---- one process --------------------------------------------------------------------------------


class _Sender:
    """A session that times its acknowledgements."""

    node, ledger_id, is_live = A, "ledger-1", True
    replaces: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.acknowledged = asyncio.Event()

    def acknowledge(self, seq: int, *, refusal: str = "") -> None:
        assert not refusal, refusal
        self.acknowledged.set()

    def resume(self) -> None: ...

    def close(self, code: int, reason: str) -> None:
        raise AssertionError(reason)


async def _measure(endpoint: str) -> dict[str, float]:
    traces = TaskSpans(endpoint, "bench") if endpoint else NO_TRACES
    desired, statuses = DesiredSets(), Statuses()
    inbox = Inbox(
        desired=desired,
        writer=statuses,
        metrics=EdgeMetrics(CollectorRegistry()),
        traces=traces,
    )
    for number in range(TASKS):
        desired.assign(key(number), {A: assignment(number, workers=(WORKER,))})
        statuses.by_uid[uid(number)] = {}
        binding = desired.binding_of(A, uid(number))
        assert binding is not None
        traces.wanted(A, key(number), uid(number), binding.version)
    sender = _Sender()
    async with serving(inbox):
        first = await _report(inbox, sender, 1)
        later = [await _report(inbox, sender, 2 + turn) for turn in range(LATER)]
    await traces.close()
    times = [each for turn in later for each in turn]
    return {
        "first_report_us": statistics.median(first),
        "later_report_us": statistics.median(times),
    }


async def _report(inbox: Inbox, sender: _Sender, seq: int) -> list[float]:
    """Microseconds from each report until its acknowledgement."""
    taken = []
    body = report_body(seen=seq)
    for number in range(TASKS):
        sender.acknowledged.clear()
        began_s = time.perf_counter()
        inbox.offer(sender, wire.Report(seq, uid(number), WORKER, 1, body))
        await sender.acknowledged.wait()
        taken.append((time.perf_counter() - began_s) * 1e6)
    return taken


# ---- the collector ------------------------------------------------------------------------------


class _Collector(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def _collector() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_measure(sys.argv[1]))))
