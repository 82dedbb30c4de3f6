"""The attackers of the section `hostile`: each is one process, as fast as it can be.

    python -m tests.bench.attackers NAME SECONDS JSON

NAME is a key of ATTACKS, JSON has the arguments of that function. Prints one JSON object: what was
done, and what the attacker was told. So a run shows whether the attack reached its target. The
attackers with the credential of a node are in `hostile_node`, those that make large objects are in
`hostile_tenant`.
"""

import asyncio
import json
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final

import uvloop

from tests.bench import hostile_node, hostile_tenant

Told = Counter[str]

POLL_S: Final = 0.01
STATUS_LINE_BYTES: Final = 12  # "HTTP/1.1 503"
LISTERS: Final = 60
SLOW: Final = 256  # as many requests as the worker API takes


class Holders:
    """Connections that say something and read nothing. One that the peer ends is opened anew.

    Args:
        say: the bytes that each connection sends once
        stays: whether a connection stays after the beginning of its answer
    """

    def __init__(self, address: tuple[str, int], count: int, say: bytes, *, stays: bool) -> None:
        self._address, self._count, self._say, self._stays = address, count, say, stays
        self._poll = select.poll()
        self._open: dict[int, socket.socket] = {}
        self.told: Told = Counter()

    def run(self, seconds: float) -> Told:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            while len(self._open) < self._count and time.monotonic() < end_s:
                self._connect()
            for number, what in self._poll.poll(POLL_S * 1000):
                if what & select.POLLIN:
                    self._note_answer(number)
                if not self._stays or what & (select.POLLERR | select.POLLHUP | select.POLLRDHUP):
                    self._leave(number)
        self.told["open at the end"] = len(self._open)
        for number in list(self._open):
            self._leave(number)
        return self.told

    def _connect(self) -> None:
        try:
            connection = socket.create_connection(self._address, timeout=1.0)
            connection.sendall(self._say)
        except OSError as error:
            self.told[f"not connected: {type(error).__name__}"] += 1
            time.sleep(POLL_S)
            return
        self.told["connections"] += 1
        self._open[connection.fileno()] = connection
        self._poll.register(connection, select.POLLIN | select.POLLRDHUP)

    def _note_answer(self, number: int) -> None:
        """Look at the beginning of the answer without reading it."""
        connection = self._open[number]
        try:
            line = connection.recv(STATUS_LINE_BYTES, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            line = b""
        self.told[f"answer {line[9:12].decode()}" if line else "cut without an answer"] += 1
        # From now on only the end of the connection is news.
        self._poll.modify(connection, select.POLLRDHUP)

    def _leave(self, number: int) -> None:
        connection = self._open.pop(number)
        self._poll.unregister(connection)
        connection.close()
        self.told["connections that ended"] += 1


def lists(seconds: float, *, port: int, path: str, stays: bool) -> Told:
    """Clients that list eleven objects of 1.3 MB and do not read; or each leaves when its answer
    begins, and asks anew.
    """
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    return Holders(("127.0.0.1", port), LISTERS, request, stays=stays).run(seconds)


def slow_bodies(seconds: float, *, url: str) -> Told:
    """Requests of one worker to the worker API whose bodies do not come."""
    _, _, address, path = url.split("/", 3)
    host, port = address.split(":")
    head = f"POST /{path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 100\r\n\r\n{{"
    return Holders((host, int(port)), SLOW, head.encode(), stays=False).run(seconds)


ATTACKS: Final[dict[str, Callable[..., Told | Coroutine[Any, Any, Told]]]] = {
    "lists": lists,
    "slow-bodies": slow_bodies,
    "model-changes": hostile_tenant.model_changes,
    "large-reports": hostile_node.large_reports,
    "frames": hostile_node.frames,
    "hellos": hostile_node.hellos,
    "returns": hostile_node.returns,
    "fat-jobs": hostile_tenant.fat_jobs,
    "pods-of-nobody": hostile_tenant.pods_of_nobody,
}


def main() -> None:
    name, seconds, arguments = sys.argv[1:]
    done = ATTACKS[name](float(seconds), **json.loads(arguments))
    told = uvloop.run(done) if asyncio.iscoroutine(done) else done
    print(json.dumps(told))


if __name__ == "__main__":
    main()
