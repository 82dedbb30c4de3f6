"""A trainer's side of the protocol: joins, waits for rounds, fetches the model, sends its update.

Called by FederatedLearning from one thread; a second thread says "I am still here" while the
first one trains. An aggregator that is not there yet, or away, is waited for; what it refuses for
good is a FederationError in its words.
"""

import functools
import logging
import secrets
import threading
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
import numpy as np

from common.backoff import Backoff
from workersdk.deadline import Deadline
from workersdk.environment import Address
from workersdk.errors import FederationError
from workersdk.federated import protocol
from workersdk.federated.layout import Layout, Vector
from workersdk.federated.protocol import (
    Commit,
    Damaged,
    Encoding,
    Join,
    Message,
    Offer,
    Received,
    RoundState,
    Welcome,
)
from workersdk.http_exchange import ExchangeError, HTTPPeer, Request, Response

log = logging.getLogger(__name__)

T = TypeVar("T")

REQUEST_TIMEOUT_S: Final = 60.0  # for one piece
WAIT_S: Final = 20.0  # in one request, for the next round
MAX_RESENDS: Final = 3  # of an update that arrived damaged


class NotJoined(Exception):
    """The aggregator does not know this participant (any more): join again."""


class RoundClosed(Exception):
    """The round is over: what was meant for it is not wanted."""


class AggregatorClient:
    """Args: name: of the participant, one for each in the federation"""

    def __init__(self, address: Address, *, name: str, secret: str) -> None:
        self._name = name
        self._instance = secrets.token_hex(8)
        self._headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self._peer = HTTPPeer(address, max_response_bytes=protocol.MAX_MESSAGE_BYTES)
        self._where = f"aggregator at {address.host}:{address.port}"
        self._encoding = Encoding()
        self._trouble = ""  # what was last said about an aggregator that is away
        self._is_closed = threading.Event()
        self._beating: threading.Thread | None = None
        self.sent_bytes = self.received_bytes = 0  # of weights

    # ---- life -----------------------------------------------------------------------------------

    def join(self, layout: Layout) -> None:
        """Waits for the aggregator. Raises: FederationError"""
        body = protocol.encode(Join(layout, self._instance))
        welcome = self._decoded(self._call("POST", self._participant, body), Welcome)
        self._encoding = welcome.encoding
        if self._beating is None:
            self._beating = threading.Thread(
                target=self._beat, args=(welcome.beat_s,), name="edgeai-participant", daemon=True
            )
            self._beating.start()

    def close(self, *, comes_again: bool = False) -> None:
        """Take part no more. Says so to the aggregator if it is there.

        Args: comes_again: do not say so, for another process is to take its place
        """
        self._is_closed.set()
        if self._beating is not None:
            self._beating.join()
        if not comes_again:
            self._once("DELETE", self._participant)
        self._peer.close()

    def _beat(self, every_s: float) -> None:
        while not self._is_closed.wait(every_s):
            self._once("POST", f"{self._participant}/beat")

    # ---- rounds ---------------------------------------------------------------------------------

    def next_round(self, after: int) -> RoundState:
        """The next round that wants something of this participant, or the end.

        Raises: NotJoined, FederationError
        """
        path = f"/v1/round?participant={self._name}&after={after}&wait={WAIT_S:g}"
        while True:
            state = self._decoded(self._call("GET", path), RoundState)
            if state.is_finished or (state.is_yours and state.round > after):
                return state

    def fetch(self, round_: int, numbers: int) -> Vector:
        """What the round starts from. Raises: NotJoined, RoundClosed, FederationError"""
        vector = np.empty(numbers, dtype=np.float32)
        for piece in range(protocol.pieces(numbers)):
            start = piece * protocol.PIECE_NUMBERS
            count = protocol.numbers_of(piece, numbers)
            vector[start : start + count] = self._resending(
                functools.partial(self._fetch_piece, round_, piece, count)
            )
        return vector

    def send(self, round_: int, vector: Vector, *, commit: Commit) -> None:
        """This participant's update. Raises: NotJoined, RoundClosed, FederationError"""
        checksum = protocol.digest(protocol.wire_parts(vector, self._encoding))
        commit = msgspec.structs.replace(commit, checksum=checksum)
        self._resending(lambda: self._send(round_, vector, commit))

    def pass_on(self, round_: int, commit: Commit) -> None:
        """Nothing for this round: no samples. Raises: NotJoined, RoundClosed, FederationError"""
        self._call("POST", f"{self._update(round_)}/commit", protocol.encode(commit))

    # ---- parts ----------------------------------------------------------------------------------

    @property
    def _participant(self) -> str:
        return f"/v1/participants/{self._name}"

    def _update(self, round_: int) -> str:
        return f"/v1/rounds/{round_}/updates/{self._name}"

    def _send(self, round_: int, vector: Vector, commit: Commit) -> None:
        path = self._update(round_)
        offer = protocol.encode(Offer(commit.checksum))
        received = self._decoded(self._call("POST", path, offer), Received)
        for piece, data in enumerate(protocol.wire_parts(vector, self._encoding)):
            if piece >= received.pieces:
                body = protocol.packed(data, self._encoding)
                self._call("PUT", f"{path}/{piece}", body)
                self.sent_bytes += len(body)
        self._call("POST", f"{path}/commit", protocol.encode(commit))

    def _fetch_piece(self, round_: int, piece: int, count: int) -> Vector:
        body = self._call("GET", f"/v1/rounds/{round_}/model/{piece}")
        self.received_bytes += len(body)
        data = protocol.unpacked(body, numbers=count, encoding=self._encoding)
        return protocol.from_wire(data, self._encoding)

    def _resending(self, attempt: Callable[[], T]) -> T:
        """Again where something was damaged on the way. Raises: FederationError, what it raises"""
        left = MAX_RESENDS
        while True:
            try:
                return attempt()
            except Damaged as error:
                if not left:
                    raise FederationError(f"{self._where}: {error}") from error
                log.warning("damaged on the way, once more: %s", error)
                left -= 1

    def _call(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Until there is an answer. Raises: NotJoined, RoundClosed, Damaged, FederationError"""
        backoff = Backoff(base_s=0.2, max_s=10.0, floor_s=0.05)
        while True:
            response, problem = self._exchange(method, path, body)
            if response is not None and response.status == 200:
                self._say("")
                return response.body
            if response is not None and response.status < 500:
                raise self._refusal(response)
            self._say(problem)
            at_least_s = response.retry_after_s if response is not None else 0.0
            if self._is_closed.wait(backoff.next_s(at_least_s=at_least_s)):
                raise FederationError(f"{self._where}: closed")

    def _once(self, method: str, path: str) -> None:
        self._exchange(method, path, b"")

    def _exchange(self, method: str, path: str, body: bytes) -> tuple[Response | None, str]:
        """The answer, and what is wrong with it or that there is none."""
        request = Request(method=method, path=path, body=body, headers=self._headers)
        try:
            response = self._peer.exchange(request, Deadline(REQUEST_TIMEOUT_S))
        except ExchangeError as error:
            return None, error.detail
        return response, f"HTTP {response.status} {_words(response)}"

    def _refusal(self, response: Response) -> Exception:
        words = _words(response)
        known = {400: Damaged, 404: NotJoined, 409: RoundClosed}
        return known.get(response.status, FederationError)(f"{self._where} refuses: {words}")

    def _decoded(self, body: bytes, type_: type[Message]) -> Message:
        try:
            return protocol.decode(body, type_)
        except Damaged as error:
            raise FederationError(f"{self._where}: {error}") from error

    def _say(self, problem: str) -> None:
        """Log a change, not every attempt of a long outage."""
        if problem and problem != self._trouble:
            log.warning("waiting for the %s: %s", self._where, problem)
        elif self._trouble and not problem:
            log.info("the %s answers again", self._where)
        self._trouble = problem


def _words(response: Response) -> str:
    """What an error's body says."""
    try:
        return str(msgspec.json.decode(response.body, type=dict[str, str])["error"])[:500]
    except (msgspec.DecodeError, KeyError):
        return response.body[:200].decode(errors="replace")
