"""An edge worker that counts, and reports its totals, until it is told to stop.

    python3 -m tests.system.counting_worker

It speaks the worker API itself, so that nothing but the totals is under its control. Once it
prints READY, SIGUSR1 ends the counting: it prints its totals as one line of JSON when the
LocalController has them.
"""

import json
import os
import secrets
import signal
import threading
import time
import urllib.request
from typing import Any, Final

READY: Final = "counting"
ONE: Final = {"seen": 5, "hard": 3, "uploaded": 2, "answeredByCloud": 2, "fallbacks": 1}
PERIOD_S: Final = 0.1
TIMEOUT_S: Final = 5.0


class Reports:
    """This process's reports, to the LocalController that the environment names."""

    def __init__(self) -> None:
        server, worker = os.environ["LC_SERVER"], os.environ["WORKER_NAME"]
        self._url = f"{server}/v1/workers/{worker}/status"
        self._instance = secrets.token_hex(8)
        self._sequence = 0

    def post(self, totals: dict[str, int]) -> bool:
        """Returns: whether the LocalController has them"""
        self._sequence += 1
        message = {
            "phase": "inference",
            "status": "running",
            "instance": self._instance,
            "sequence": self._sequence,
            "output": {"taskInfo": totals},
        }
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url, json.dumps(message).encode(), headers)
        try:
            urllib.request.urlopen(request, timeout=TIMEOUT_S).close()
        except OSError:
            return False
        return True


def main() -> None:
    told = threading.Event()
    signal.signal(signal.SIGUSR1, lambda _number, _frame: told.set())
    signal.signal(signal.SIGTERM, stop)
    print(READY, flush=True)
    reports = Reports()
    totals = dict(ONE)
    while not told.wait(PERIOD_S):
        totals = {name: total + ONE[name] for name, total in totals.items()}
        reports.post(totals)
    while not reports.post(totals):
        time.sleep(PERIOD_S)
    print(json.dumps(totals), flush=True)
    while True:
        signal.pause()


def stop(_number: int, _frame: Any) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    main()
