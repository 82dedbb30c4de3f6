"""Federations on loopback, in threads and in processes."""

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeai.participants import participant_secret
from edgeai.worker.deadline import Deadline
from edgeai.worker.environment import Address
from edgeai.worker.federated import protocol
from edgeai.worker.federated.aggregations import FedAvg, Slice
from edgeai.worker.federated.client import AggregatorClient
from edgeai.worker.federated.environment import FederationEnvironment, Secret
from edgeai.worker.federated.layout import Vector
from edgeai.worker.federated.protocol import Encoding
from edgeai.worker.federated.server import AggregationServer
from edgeai.worker.federated.store import RoundStore
from edgeai.worker.http_exchange import HTTPPeer, Request, Response
from tests.edgeai.worker.federated.scripted import ScriptedAggregator
from tests.edgeai.worker.peers import LOOPBACK
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, eventually

SECRET = "the job's own"


def own(name: str) -> str:
    """The secret of a participant."""
    return participant_secret(SECRET, name)


def headers(name: str, *, secret: str = SECRET) -> dict[str, str]:
    """What the participant `name` of the job with this secret sends."""
    return {
        "Authorization": f"Bearer {participant_secret(secret, name)}",
        protocol.PARTICIPANT_HEADER: name,
    }


def head(name: str) -> str:
    return "".join(f"{key}: {value}\r\n" for key, value in headers(name).items())


def sender_of(path: str) -> str:
    """The participant that a path names; "a" when the path names none."""
    found = re.search(r"/(?:participants|updates)/([^/?]+)|participant=([^&]+)", path)
    return (found[1] or found[2]) if found else "a"


class Slow(FedAvg):
    """Begins to join the updates, and goes on when it is told to."""

    def __init__(self) -> None:
        self.begins, self.go = threading.Event(), threading.Event()

    def combine(self, slice_: Slice) -> tuple[Vector, Vector]:
        self.begins.set()
        self.go.wait(PATIENCE_S)
        return super().combine(slice_)


class SlowDisk:
    """From now on a write of the file called `name` hangs in its fsync until `go`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        self.begins, self.go = threading.Event(), threading.Event()
        self._name, self._fsync = name, os.fsync
        monkeypatch.setattr(os, "fsync", self._sync)

    def _sync(self, descriptor: int) -> None:
        if Path(os.readlink(f"/proc/self/fd/{descriptor}")).name == self._name:
            self.begins.set()
            self.go.wait(PATIENCE_S)
        self._fsync(descriptor)


class Federation:
    """An aggregator that serves in a thread."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.environment = FederationEnvironment(
            bind=Address(LOOPBACK, options.pop("port", 0)),
            secret=Secret(SECRET),
            state_dir=directory / "state",
            model_url=str(directory / "final.npz"),
            participants=options.pop("participants", 1),
            pretrained_model_url=options.pop("pretrained_model_url", ""),
            participants_file=options.pop("participants_file", None),
        )
        self.server = AggregationServer(environment=self.environment, **options)
        self._result: bool | None = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name="aggregator")
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._result = self.server.serve()
        except Exception as error:  # noqa: BLE001 - join() raises it
            self._error = error

    def trainer(self, name: str, *, secret: str = SECRET) -> FederationEnvironment:
        return self.trainer_of(self.server.address, name, secret=secret)

    @staticmethod
    def trainer_of(
        aggregator: Address, name: str, *, secret: str = SECRET
    ) -> FederationEnvironment:
        return FederationEnvironment(worker_name=name, aggregator=aggregator, secret=Secret(secret))

    def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        instance: str = "",
        timeout_s: float = PATIENCE_S,
    ) -> Response:
        """One request of somebody who knows the secret."""
        sent = {**headers(sender_of(path)), protocol.INSTANCE_HEADER: instance}
        peer = HTTPPeer(self.server.address, max_response_bytes=1 << 24)
        try:
            request = Request(method=method, path=path, body=body, headers=sent)
            return peer.exchange(request, Deadline(timeout_s))
        finally:
            peer.close()

    def join(self) -> bool | None:
        """What serve() gave back. Raises: what it raised, the first time"""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the aggregator goes on"
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._result

    def stop(self) -> bool | None:
        self.server.stop()
        return self.join()


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Any]:
    """Makes aggregators. One that raises fails its test, unless that had it from join()."""
    with ExitStack() as stack:

        def make(**options: Any) -> Federation:
            made = Federation(tmp_path, **options)
            stack.callback(made.stop)
            return made

        yield make


MakeFederation = Callable[..., Federation]
"""The fixture `federation`."""


@pytest.fixture
def aggregator() -> Iterator[ScriptedAggregator]:
    with ScriptedAggregator() as made:
        yield made


@pytest.fixture
def client(aggregator: ScriptedAggregator) -> Iterator[AggregatorClient]:
    """Has not joined."""
    made = AggregatorClient(aggregator.address, name="a", secret=own("a"))
    yield made
    aggregator.script = lambda _asked: None
    made.close()


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., RoundStore]:
    """The store of the federation's directory, as a new process opens it."""

    def open_(encoding: Encoding = Encoding(), **options: int) -> RoundStore:  # noqa: B008 - is frozen
        return RoundStore(tmp_path / "state", encoding, **options)

    return open_


@contextmanager
def running(
    *targets: Any, may_raise: type[Exception] | tuple[type[Exception], ...] = ()
) -> Iterator[list[Any]]:
    """Each in a thread of its own; what they gave back, once all have ended.

    Args: may_raise: what the test expects: it is among the results. Anything else fails the test
    """
    results: list[Any] = [None] * len(targets)

    def run(index: int) -> None:
        try:
            results[index] = targets[index]()
        except Exception as error:  # noqa: BLE001 - raised below
            results[index] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(targets))]
    for thread in threads:
        thread.start()
    try:
        yield results
    finally:
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a trainer goes on"
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, may_raise):
            raise result


@contextmanager
def disk_of(max_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def is_waiting(thread: threading.Thread) -> bool:
    """Whether it waits for an Event or a Condition."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code is threading.Condition.wait.__code__


# ---- workers in processes of their own ----------------------------------------------------------


class Workers:
    """Workers of one job, each in a process of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.state_dir = directory / "state"
        self._port = free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(
        self, name: str, *arguments: object, gone_after_s: float = 2.0, linger_s: float = 300.0
    ) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "JOB_SECRET": SECRET,
            "AGG_BIND_IP": LOOPBACK,
            "AGG_BIND_PORT": str(self._port),
            "AGG_IP": LOOPBACK,
            "AGG_PORT": str(self._port),
            "WORKER_NAME": name,
            "FEDERATION_STATE_DIR": str(self.state_dir),
            "MODEL_URL": str(self.model(name)),
            "GONE_AFTER_S": str(gone_after_s),
            "LINGER_S": str(linger_s),
        }
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.edgeai.worker.federated.worker",
                    *map(str, arguments),
                ],
                env=environment,
                stderr=log,
            )
        self._processes.append(process)
        return process

    def log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def says(self, name: str, words: str) -> None:
        log = self.log(name)
        eventually(f"{words!r} in the log of {name}", lambda: words in log.read_text())

    def final(self) -> Any:
        return np.load(self.model("aggregator"))["mean"]

    def kept(self) -> set[str]:
        """What is in the aggregator's directory."""
        return {path.name for path in self.state_dir.iterdir()}

    def model(self, name: str) -> Path:
        return self._directory / f"{name}.npz"

    def stop(self) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    made = Workers(tmp_path)
    try:
        yield made
    finally:
        made.stop()


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_S)
