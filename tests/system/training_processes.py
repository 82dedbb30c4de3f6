"""Processes that behave like collective training, without PyTorch: each one needs all the others.

The master waits for all workers, trains until a file appears, tells the workers that it is done and
ends with 0. Whoever loses a peer before that ends with 1, as a process of gloo does.
"""

import sys
from pathlib import Path
from typing import Any, Final

_PROCESS: Final = """
import os, pathlib, select, signal, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
finish, crash = map(pathlib.Path, sys.argv[1:])
if rank == 0:
    listener = socket.create_server(place)
    peers = {}
    while len(peers) < world - 1:
        peer = listener.accept()[0]
        told = peer.recv(10)
        if told:  # a worker that waits for the port says nothing
            peers[int(told)] = peer
    print("training", world, flush=True)
    while not finish.exists():
        if select.select(peers.values(), [], [], 0.1)[0]:
            sys.exit("lost a worker")
    for peer in peers.values():
        peer.sendall(b"done")
else:
    master = socket.create_connection(place)
    master.sendall(str(rank).encode())
    if rank == world - 1 and crash.exists():
        crash.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if not master.recv(10):
        sys.exit("lost the master")
"""


def spec(finish: Path, crash: Path | None = None, **of_workers: Any) -> dict[str, Any]:
    """The spec of a PyTorchJob of a master and two workers that all restart together.

    Args:
        finish: the file that ends the training
        crash: while this file exists, the last worker removes it and crashes
        of_workers: further fields of the workers' pods
    """
    command = [sys.executable, "-c", _PROCESS, str(finish), str(crash or finish)]
    container = {"name": "pytorch", "image": "edgeai/test", "command": command}
    pod = {"containers": [container], "terminationGracePeriodSeconds": 1}
    return {
        "runPolicy": {"cleanPodPolicy": "All", "restartScope": "Job"},
        "pytorchReplicaSpecs": {
            "Master": {"template": {"spec": pod}},
            "Worker": {"replicas": 2, "template": {"spec": {**pod, **of_workers}}},
        },
    }
