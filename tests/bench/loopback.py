"""The bytes of a federated round, copied over loopback once: what `federated` is measured beside.

A hub and each of its peers are processes of their own. In a round the hub sends a vector to each
peer, which has it in a new array and sends it back. Nothing is checked, kept or computed.
"""

import itertools
import json
import socket
import sys
import threading
import time
from typing import Any, Final

import numpy as np

from tests.bench.process import answer_of, start

HOST: Final = "127.0.0.1"
STEP_BYTES: Final = 1 << 20


def costs(parameters: int, peers: int, rounds: int) -> tuple[list[float], float]:
    """Seconds of each round but the first, and processor seconds of a round in all processes."""
    hub = start("loopback", "hub", parameters, peers, rounds)
    assert hub.stdout is not None
    port = int(hub.stdout.readline())
    others = [start("loopback", "peer", port, parameters, rounds) for _ in range(peers)]
    seconds, processor_s = answer_of(hub)
    return seconds, processor_s + sum(answer_of(other) for other in others)


def _hub(parameters: str, peers: str, rounds: str) -> None:
    data = np.ones(int(parameters), np.float32).data.cast("B")
    with socket.create_server((HOST, 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        lines = [listener.accept()[0] for _ in range(int(peers))]
    ends, processor_s = [], []
    for _ in range(int(rounds)):
        threads = [threading.Thread(target=_round, args=(line, data)) for line in lines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        ends.append(time.monotonic())
        processor_s.append(time.process_time())
    seconds = [after - before for before, after in itertools.pairwise(ends)]
    print(json.dumps([seconds, mean_step(processor_s)]))


def _round(line: socket.socket, data: memoryview) -> None:
    line.sendall(data)
    buffer, left = bytearray(STEP_BYTES), len(data)
    while left:
        left -= line.recv_into(buffer, min(left, STEP_BYTES))


def _peer(port: str, parameters: str, rounds: str) -> None:
    processor_s = []
    with socket.create_connection((HOST, int(port))) as line:
        for _ in range(int(rounds)):
            data = np.empty(int(parameters), np.float32).data.cast("B")
            line.recv_into(data, 0, socket.MSG_WAITALL)
            line.sendall(data)
            processor_s.append(time.process_time())
    print(json.dumps(mean_step(processor_s)))


def mean_step(moments: list[float]) -> float:
    """The mean time between two moments."""
    return (moments[-1] - moments[0]) / (len(moments) - 1)


if __name__ == "__main__":
    role: Any = _hub if sys.argv[1] == "hub" else _peer
    role(*sys.argv[2:])
