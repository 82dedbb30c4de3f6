"""The workers of launcher.py: starts them, hears them, and does without those that are lost.

The list of hosts comes from a script, as Horovod takes it. The agent, ssh or a program with the
same arguments, starts a program on a host: `AGENT HOST COMMAND`.
"""

import json
import secrets
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from edgeai.demo.digits import Floats, Labels
from edgeai.demo.elastic_training.messages import Connection

DISCOVERY_EVERY_S: Final = 0.5
SCRIPT_S: Final = 10.0
ANSWER_S: Final = 10.0
"""A worker that does not answer for so long is lost."""
_HELLO_S: Final = 2.0
_CHECKOUT: Final = Path(__file__).parents[3]


class Team:
    """Args:
    script: prints one line `host:slots` for each worker; each host gets one process
    agent: command with its first arguments
    address: of this process, as workers reach it
    files: directory of the images, at the same path on all workers
    """

    def __init__(self, script: Path, agent: Sequence[str], address: str, files: Path) -> None:
        self.losses = 0
        """How often a worker was lost that the list of hosts had."""
        self._script = script
        self._agent = agent
        self._files = files
        # The workers get the token as an argument, so the token must not begin with "-".
        self._token = secrets.token_hex(16)
        self._listener = socket.create_server((address, 0))
        self._listener.setblocking(False)
        self._hosts: list[str] = []
        self._programs: dict[str, subprocess.Popen[bytes]] = {}
        self._connections: dict[str, Connection] = {}
        self._read_at_s = -DISCOVERY_EVERY_S

    @property
    def hosts(self) -> list[str]:
        return sorted(self._connections)

    def refresh(self) -> None:
        """Read the list of hosts now and then, start and end workers as it says, hear new ones."""
        if time.monotonic() - self._read_at_s >= DISCOVERY_EVERY_S:
            self._read_hosts()
            self._read_at_s = time.monotonic()
            for host, program in [*self._programs.items()]:
                has_failed = program.poll() is not None and host not in self._connections
                if host not in self._hosts or has_failed:
                    self._end(host)
            for host in self._hosts:
                if host not in self._programs:
                    self._start(host)
        self._accept()

    def gradient(self, step: int, weights: Floats, batch: Labels) -> tuple[Floats, float] | None:
        """The sums of gradient and loss over the batch, each worker computes a share.

        Returns: None if there is no worker, or one is lost; nothing of the step counts then
        """
        asked, lost = [], []
        shares = np.array_split(batch, len(self.hosts) or 1)
        for host, share in zip(self.hosts, shares, strict=False):  # one share for no worker
            request = {"step": step, "images": share.tolist()}
            try:
                self._connections[host].send(request, weights)
                asked.append(host)
            except OSError:
                lost.append(host)
        answers = []
        for host in asked:
            try:
                line, vector = self._connections[host].receive(with_vector=True)
                answers.append((vector, float(line["loss"])))
            except (OSError, KeyError, TypeError, ValueError):
                lost.append(host)
        for host in lost:
            self._lose(host)
        if lost or not answers:
            return None
        return np.sum([vector for vector, _ in answers], axis=0), sum(loss for _, loss in answers)

    def close(self) -> None:
        for host in [*self._programs]:
            self._end(host)
        self._listener.close()

    # ---- workers -------------------------------------------------------------------------------

    def _read_hosts(self) -> None:
        """A script that fails leaves the list as it is."""
        process = subprocess.run(
            [self._script], capture_output=True, text=True, timeout=SCRIPT_S, check=False
        )
        if process.returncode:
            print(
                f"{self._script} ended with {process.returncode}: {process.stderr}", file=sys.stderr
            )
            return
        self._hosts = [line.split(":")[0] for line in process.stdout.split()]

    def _start(self, host: str) -> None:
        address, port = self._listener.getsockname()
        module = "edgeai.demo.elastic_training.worker"
        words = [sys.executable, "-m", module, self._files, host, address, port, self._token]
        command = f"cd {shlex.quote(str(_CHECKOUT))} && exec " + shlex.join(
            str(word) for word in words
        )
        self._programs[host] = subprocess.Popen(
            [*self._agent, host, command], stdin=subprocess.DEVNULL
        )

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except BlockingIOError:
                return
            connection = Connection(peer, timeout_s=_HELLO_S)
            try:
                hello, _ = connection.receive(with_vector=False)
                is_ours = hello.get("token") == self._token and hello.get("host") in self._programs
            except OSError:
                is_ours = False
            if not is_ours:
                connection.close()
                continue
            peer.settimeout(ANSWER_S)
            self._connections[hello["host"]] = connection
            self._tell("joined", hello["host"])

    def _lose(self, host: str) -> None:
        self.losses += 1
        self._end(host, "lost")

    def _end(self, host: str, why: str = "left") -> None:
        """Close the connection, so that the worker ends; end the agent, too."""
        connection = self._connections.pop(host, None)
        program = self._programs.pop(host)
        if connection is not None:
            connection.close()
            self._tell(why, host)
            with suppress(subprocess.TimeoutExpired):
                program.wait(_HELLO_S)
        program.terminate()
        with suppress(subprocess.TimeoutExpired):
            program.wait(_HELLO_S)
        program.kill()
        program.wait()

    def _tell(self, event: str, host: str) -> None:
        record = {"event": event, "worker": host, "workers": len(self._connections)}
        print(json.dumps(record), flush=True)
