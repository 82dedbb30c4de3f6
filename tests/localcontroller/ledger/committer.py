"""A process that records one message after another and prints the number of each commit.

`python -m tests.localcontroller.ledger.committer <state directory>`; meant to be killed.
"""

import asyncio
import itertools
import sys
from pathlib import Path

from localcontroller.ledger.ledger import Ledger
from tests.localcontroller.builders import UID, WORKER, assign, synced, worker_message


async def commit_for_ever(directory: Path) -> None:
    ledger = await Ledger.open(directory)
    await ledger.apply([assign()])
    rows = await ledger.workers()
    first = rows[0].worker.totals["seen"] + 1 if rows else 1
    for n in itertools.count(first):
        await ledger.record(UID, WORKER, [worker_message(n, sequence=n)])
        await ledger.apply(
            [assign("faces", uid=f"faces-{n}", version=n), synced("digits", "faces")]
        )
        print(n, flush=True)


if __name__ == "__main__":
    asyncio.run(commit_for_ever(Path(sys.argv[1])))
