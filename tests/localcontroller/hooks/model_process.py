"""Nodes that fetch one Model, each killed at another step on the disk, and then started again.

    python3 -m tests.localcontroller.hooks.model_process STATE_DIR URL SHA256 STRIDE

A step is an operation on a file of the store: open, rename, remove, truncate, utime, chmod. The
process prints a line of JSON for each node. The first node is not killed, and tells the steps.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from localcontroller.content import ContentStore
from localcontroller.ledger.ledger import Ledger
from tests.localcontroller.hooks.model_world import assign, fetching, key, sha256

READS = ("os.scandir", "os.listdir")


class Steps:
    """An audit hook that counts steps, and kills its process at one of them."""

    def __init__(self, directory: Path, kill_at: int) -> None:
        self._directory, self._kill_at = str(directory), kill_at
        self.count = 0

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        is_step = event == "open" or (event.startswith("os.") and event not in READS)
        if is_step and any(str(each).startswith(self._directory) for each in args):
            self.count += 1
            if self.count == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


async def fetch(state_dir: Path, url: str, digest: str) -> None:
    ledger = await Ledger.open(state_dir)
    await ledger.apply([assign(url=url, sha256=digest)])
    async with fetching(ledger, state_dir / "content") as node:
        node.tries_at_once = True
        await node.until_ready()
    await ledger.close()


def run(state_dir: Path, url: str, digest: str, kill_at: int) -> int:
    """In a child. Returns: its steps; -1: it was killed"""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        steps = Steps(state_dir / "content", kill_at)
        sys.addaudithook(steps)
        asyncio.run(fetch(state_dir, url, digest))
        os.write(writer, str(steps.count).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as output:
        count = output.read()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == (0 if count else -signal.SIGKILL)
    return int(count or -1)


def look(state_dir: Path) -> dict[str, Any]:
    """What a worker of the node could see, and what is on its disk."""
    files = {file.suffix: file for file in (state_dir / "content").glob("*")}
    sizes = {suffix: file.stat().st_size for suffix, file in files.items()}
    marked = json.loads(files[".mark"].read_bytes())["bytes"] if ".mark" in files else 0
    marked = marked if marked <= sizes.get(".part", 0) else 0
    store = ContentStore(state_dir / "content", max_bytes=2**30)
    contents = [store.read(each.digest, 0, 2**30) for each in store.versions(key())]
    suffixes = sorted({file.suffix for file in (state_dir / "content").glob("*")})
    digests = [sha256(each) for each in contents]
    return {"digests": digests, "suffixes": suffixes, "bytes": max(marked, sizes.get("", 0))}


def main(base: Path, url: str, digest: str, stride: int) -> None:
    steps = run(base / "whole", url, digest, 0)
    print(json.dumps({"steps": steps}), flush=True)
    for step in range(1, steps + 1, stride):
        node = base / f"killed-{step}"
        steps = run(node, f"{url}/{step}", digest, step)
        killed = look(node)
        run(node, f"{url}/{step}", digest, 0)
        line = {"step": step, "is_killed": steps < 0, "killed": killed, "end": look(node)}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
