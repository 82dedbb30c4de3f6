"""Gives the content of Models to workers: which versions a Model has here, and their bytes.

A worker reads Models of its own namespace and API group. It fetches content in pieces, so no answer
takes much memory and each can be asked for again. A piece counts until the client has read it:
clients that do not read must not take the memory of the LocalController.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, TypeVar

import msgspec

from common.logs import get_logger
from edgeai.errors import Overloaded
from edgeai.ids import TaskKey, TaskRef, parse_task_key
from localcontroller.content import ContentStore
from localcontroller.http_server import JSON, Answer, Request
from localcontroller.ledger.tables import Grant

log = get_logger(__name__)

PIECE_BYTES: Final = 128 * 1024
MAX_PIECES: Final = 64  # at a time
GRANT_PIECES: Final = 16  # at a time, of one secret
BUSY_RETRY_S: Final = 1.0

T = TypeVar("T")


class _Piece:
    """Bytes that are read from the disk, or that wait until the client reads them."""

    def __init__(self, grant: Grant, request: Request) -> None:
        self.grant, self.request = grant, request
        self.is_read = False

    @property
    def has_bytes(self) -> bool:
        return not self.is_read or self.request.unsent_bytes > 0


class Threads(Protocol):
    async def run(self, name: str, work: Callable[[], T], /) -> T:
        """Run `work` on a thread, one call at a time for each name. Returns: its result"""


class ModelApi:
    """Args: threads: for reads of the disk, which may block for long"""

    def __init__(self, store: ContentStore, threads: Threads) -> None:
        self._store = store
        self._threads = threads
        self._pieces: list[_Piece] = []

    async def versions(self, grant: Grant, name: str, loaded: str = "") -> Answer:
        """The versions of a Model, newest first. An empty list: none is here yet.

        Args: loaded: digest of the version that the worker has loaded
        """
        key = _key(grant, name)
        versions = self._store.versions(key)
        if loaded:
            try:
                await self._threads.run(key, partial(self._store.loaded, key, loaded))
            except OSError as error:
                log.warning("cannot note which version is loaded", task=key, reason=str(error))
        return Answer(body=msgspec.json.encode(versions), content_type=JSON)

    async def piece(
        self, grant: Grant, request: Request, name: str, digest: str, offset: str
    ) -> Answer | None:
        """The next bytes, at most PIECE_BYTES; None: no such content. Raises: Overloaded"""
        versions = self._store.versions(_key(grant, name))
        is_offset = offset.isascii() and offset.isdigit() and len(offset) <= 15
        if not is_offset or digest not in {version.digest for version in versions}:
            return None
        piece = self._admit(grant, request)
        read = partial(self._store.read, digest, int(offset), PIECE_BYTES)
        try:
            data = await self._threads.run(f"{id(piece)}", read)
        except OSError:
            return None
        finally:
            piece.is_read = True
        return Answer(body=data, content_type="application/octet-stream")

    def _admit(self, grant: Grant, request: Request) -> _Piece:
        """Raises: Overloaded"""
        self._pieces = [piece for piece in self._pieces if piece.has_bytes]
        of_grant = sum(piece.grant == grant for piece in self._pieces)
        if len(self._pieces) >= MAX_PIECES or of_grant >= GRANT_PIECES:
            raise Overloaded("the reads of content", BUSY_RETRY_S)
        piece = _Piece(grant, request)
        self._pieces.append(piece)
        return piece


def _key(grant: Grant, name: str) -> TaskKey:
    task = parse_task_key(grant.key)
    return TaskRef("models", task.group, task.namespace, name).key
