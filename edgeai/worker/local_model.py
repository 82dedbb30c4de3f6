"""The content of the worker's Model, from the LocalController of its node.

A fetch takes the content in pieces, goes on where an earlier one ended, and verifies the digest. So
a worker that restarts fetches nothing twice. The processes of a pod may share the directory.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from io import BufferedRandom
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from edgeai.errors import EdgeAIError
from edgeai.worker.deadline import Deadline
from edgeai.worker.environment import LCServer
from edgeai.worker.http_exchange import ExchangeError, HTTPPeer, Request, Response

PIECE_S: Final = 30.0
MAX_PIECE_BYTES: Final = 4 * 1024 * 1024


class ContentError(EdgeAIError):
    """The content of a Model cannot be had now."""


class ModelVersion(msgspec.Struct, frozen=True):
    """A version of the worker's Model. `generation` is that of the Model's spec."""

    generation: int
    digest: str
    size: int
    name: str


class ModelSource:
    """Where the versions of a model come from. One that keeps no files has two methods alone."""

    def versions(self, loaded: str = "") -> list[ModelVersion]:
        """The versions that the node has, newest first.

        Args: loaded: digest of the version that this worker has loaded, which the node then keeps
        Raises: ContentError
        """
        raise NotImplementedError

    def fetch(self, version: ModelVersion) -> Path:
        """The file with the content of `version`. Raises: ContentError"""
        raise NotImplementedError

    def load_begins(self, version: ModelVersion) -> bool:
        """Returns: False: an earlier process ended in the middle of a load of this version"""
        return True

    def load_ended(self) -> None:
        """The load is over, well or not."""

    def keep_only(self, digest: str) -> None:
        """Delete the files of all other versions. Raises: ContentError"""

    def close(self) -> None:
        """Nobody asks any more."""


class LocalModel(ModelSource):
    """Args: name: of the Model; directory: where the content goes"""

    def __init__(self, server: LCServer, worker: str, name: str, directory: Path) -> None:
        self._path = f"{server.path}/v1/workers/{quote(worker, safe='')}/models/{quote(name)}"
        self._peer = HTTPPeer(server.address, max_response_bytes=MAX_PIECE_BYTES)
        self._directory = directory
        self._mark = contextlib.ExitStack()  # of the load that goes on

    def versions(self, loaded: str = "") -> list[ModelVersion]:
        try:
            body = self._get(f"/{loaded}" if loaded else "").body
            return msgspec.json.decode(body, type=list[ModelVersion])
        except msgspec.DecodeError as error:
            raise ContentError(f"the LocalController's answer cannot be read: {error}") from error

    def fetch(self, version: ModelVersion) -> Path:
        directory = self._directory / version.digest
        whole, part = directory / Path(version.name).name, directory / ".part"
        with _disk_errors():
            directory.mkdir(parents=True, exist_ok=True)
            if whole.exists():
                return whole
            with part.open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released with the file
                if not whole.exists():
                    self._fill(file, version)
                    part.replace(whole)
        return whole

    def _fill(self, file: BufferedRandom, version: ModelVersion) -> None:
        """Raises: ContentError, OSError"""
        file.seek(0, 2)
        while file.tell() < version.size:
            piece = self._get(f"/{version.digest}/{file.tell()}").body
            if not piece:
                break
            file.write(piece)
        file.seek(0)
        if hashlib.file_digest(file, "sha256").hexdigest() != version.digest:
            file.truncate(0)
            raise ContentError(f"version {version.generation} has come damaged")

    def load_begins(self, version: ModelVersion) -> bool:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            mark = (self._directory / version.digest / ".loading").open("a+b", buffering=0)
            stack.enter_context(mark)
            # A process holds the lock while it loads. Another one may load the same meanwhile.
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(mark.fileno()).st_size:
                mark.truncate(0)  # one try for each process that starts: not each end is a fault
                return False
            mark.write(b"1")
            self._mark = stack.pop_all()
            self._mark.callback(mark.truncate, 0)  # before it is closed
        return True

    def load_ended(self) -> None:
        with contextlib.suppress(OSError):
            self._mark.close()

    def keep_only(self, digest: str) -> None:
        with _disk_errors():
            for directory in self._directory.iterdir():
                if directory.name != digest:
                    shutil.rmtree(directory, ignore_errors=True)

    def close(self) -> None:
        self._peer.close()

    def _get(self, path: str) -> Response:
        """Raises: ContentError"""
        try:
            request = Request(method="GET", path=self._path + path)
            response = self._peer.exchange(request, Deadline(PIECE_S))
        except ExchangeError as error:
            raise ContentError(f"the LocalController does not answer: {error.detail}") from error
        if response.status == 404:
            raise ContentError("the LocalController has no such content, or is too old to have any")
        if response.status != 200:
            raise ContentError(f"the LocalController answers HTTP {response.status}")
        return response


@contextlib.contextmanager
def _disk_errors() -> Iterator[None]:
    """Raises: ContentError"""
    try:
        yield
    except BlockingIOError as error:
        raise ContentError("another process of this pod is fetching it") from error
    except OSError as error:
        raise ContentError(f"the disk of the pod: {error.strerror}") from error
