"""The example's Horovod script under horovodrun, whose hosts are processes of this machine.

No Kubernetes: a script of the test lists the hosts, and a program named ssh starts their processes.
"""

import contextlib
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.elastic import progress
from tests.elastic.progress import Event
from tests.support.waiting import eventually

SCRIPT: Final = Path(__file__).parents[2] / "edgeai/demo/elastic_training/horovod_train.py"
PATIENCE_S: Final = 300.0
_SSH: Final = """\
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift 2; done
shift
exec sh -c "$*"
"""


class Run:
    """Args: hosts: that are listed from the start"""

    def __init__(self, python: Path, directory: Path, files: Path, *hosts: str) -> None:
        self._list = directory / "hostfile"
        self.list_hosts(*hosts)
        discovery = directory / "discover_hosts.sh"
        discovery.write_text(f"#!/bin/sh\ncat {shlex.quote(str(self._list))}\n")
        (directory / "bin").mkdir()
        ssh = directory / "bin" / "ssh"
        ssh.write_text(_SSH)
        for each in (discovery, ssh):
            each.chmod(0o755)
        beside = python.parent
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [
                *(beside / "horovodrun", "--host-discovery-script", discovery),
                *("--num-proc=2", "--min-np=1", "--max-np=4", "--network-interface=lo"),
                "--gloo-timeout-seconds=60",
                *(python, SCRIPT, files, "--steps=1500", "--pause-s=0.2"),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={
                "PATH": f"{ssh.parent}:{beside}:/usr/bin:/bin",
                "HOME": str(directory),
                "OMP_NUM_THREADS": "1",
            },
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def list_hosts(self, *hosts: str) -> None:
        new = self._list.with_suffix(".new")
        new.write_text("".join(f"{host}:1\n" for host in hosts))
        new.replace(self._list)

    @property
    def events(self) -> list[Event]:
        return progress.events(self.lines)

    def wait_for_workers(self, count: int) -> None:
        def check() -> bool:
            assert self._process.poll() is None, "\n".join(self.lines[-20:])
            return progress.check_size(self.events, count)

        eventually(f"{count} workers", check, timeout_s=PATIENCE_S, poll_s=0.5)

    def kill(self, host: str) -> None:
        wanted = f"HOROVOD_HOSTNAME={host}".encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and self._is_training(entry, wanted):
                os.kill(int(entry.name), signal.SIGKILL)
                return
        raise AssertionError(f"no process of {host}")

    def _is_training(self, process: Path, wanted: bytes) -> bool:
        """Whether it is Python, not the shell around it, of this run and host."""
        try:
            environment = (process / "environ").read_bytes().split(b"\0")
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        home = f"HOME={self._list.parent}".encode()
        return {wanted, home} <= {*environment} and words[0].endswith(b"python")

    def end(self) -> int:
        """Wait for the end. Returns: exit status"""
        status = self._process.wait(PATIENCE_S)
        self._reader.join()
        return status

    def stop(self) -> None:
        home = f"HOME={self._list.parent}".encode()
        for entry in Path("/proc").iterdir():  # workers have sessions of their own
            if entry.name.isdecimal() and _has(entry, home):
                with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
                    os.kill(int(entry.name), signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(self._process.stdout)


def _has(process: Path, variable: bytes) -> bool:
    try:
        return variable in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


@pytest.fixture
def run(python: Path, tmp_path: Path, files: Path) -> Iterator[Run]:
    made = Run(python, tmp_path, files, "worker-0", "worker-1")
    yield made
    made.stop()


def test_workers_come_and_go_and_one_is_killed(run: Run, files: Path) -> None:
    run.wait_for_workers(2)
    run.list_hosts("worker-0", "worker-1", "worker-2", "worker-3")
    run.wait_for_workers(4)
    run.kill("worker-3")
    run.wait_for_workers(3)
    run.list_hosts("worker-0", "worker-1", "worker-2", "worker-4")  # its replacement
    run.wait_for_workers(4)
    run.list_hosts("worker-0", "worker-2", "worker-4")
    run.wait_for_workers(3)
    (files / "hurry").touch()
    assert run.end() == 0, "\n".join(run.lines[-20:])
    result = run.events[-1]
    assert result["event"] == "result"
    assert result["accuracy"] >= 0.95
    progress.check_steps(run.events)
