"""The trainer's side of the protocol: joins, waits for rounds, fetches the model, sends updates.

FederatedLearning calls AggregatorClient from one thread. A second thread sends beats while the
first thread trains. The client waits while it cannot reach the aggregator. After a restart of the
aggregator the client joins again, and continues the interrupted transfer. If the aggregator will
refuse every further try, the client raises FederationError with the aggregator's text, for example
because another process has taken the name.
"""

import contextlib
import functools
import http.client
import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
import numpy as np

from edgeai.backoff import Backoff
from edgeai.worker.deadline import Deadline
from edgeai.worker.environment import Address
from edgeai.worker.errors import FederationError
from edgeai.worker.federated import bundles, protocol
from edgeai.worker.federated.layout import Layout, Numbers, Vector
from edgeai.worker.federated.protocol import (
    Commit,
    Damaged,
    Data,
    Encoding,
    Join,
    Message,
    Offer,
    Received,
    RoundState,
    Welcome,
)
from edgeai.worker.http_exchange import ExchangeError, HTTPPeer, Parts, Request, Response
from edgeai.worker.transport import DIRECT, Route

log = logging.getLogger(__name__)

T = TypeVar("T")

REQUEST_TIMEOUT_S: Final = 60.0  # for one piece; the aggregator has the same limit
BEAT_TIMEOUT_S: Final = 10.0
LEAVE_TIMEOUT_S: Final = 2.0  # Kubernetes gives a stopped pod 30 s in all
WAIT_S: Final = 20.0  # for the next round, in one request
MAX_RESENDS: Final = 3  # tries in a row to send a damaged transfer again
MAX_REJOINS: Final = 3  # for one request, to one process of the aggregator


class RoundClosed(Exception):
    """The round is over: the aggregator takes no more updates for this round."""


class _NotJoined(Exception):
    """The aggregator does not know this participant."""


class Heartbeat:
    """Calls `beat` on a thread, once in each period, from the first set_period() until close()."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat = beat
        self._change = threading.Condition()  # guards the fields below
        self._period_s = 0.0
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def set_period(self, period_s: float) -> None:
        """Send each further beat `period_s` after the one before. `beat` may call set_period."""
        with self._change:
            self._period_s = period_s
            self._change.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="edgeai-participant", daemon=True
                )
                self._thread.start()

    def close(self, timeout_s: float) -> None:
        """Stop. Wait up to `timeout_s` for a beat in progress, which may take longer."""
        with self._change:
            self._is_closed = True
            self._change.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while self._wait_until_due():
            try:
                self._beat()
            except Exception:  # without further beats this participant would count as gone
                log.warning("a beat failed; the next one is sent all the same", exc_info=True)

    def _wait_until_due(self) -> bool:
        """Wait until a beat is due. Returns: False if the Heartbeat was closed"""
        with self._change:
            while not self._is_closed and self._change.wait(self._period_s):
                pass  # the period has changed: wait again
            return not self._is_closed


class AggregatorClient:
    """Args:
    name: name of the participant, unique in the federation
    secret: the participant's own; "": the aggregator asks for none
    leave_timeout_s: longest time in which close() tells the aggregator
    """

    def __init__(
        self,
        address: Address,
        *,
        name: str,
        secret: str,
        leave_timeout_s: float = LEAVE_TIMEOUT_S,
        route: Route = DIRECT,
    ) -> None:
        self._name = name
        self._leave_timeout_s = leave_timeout_s
        self._instance = secrets.token_hex(8)
        self._headers = {
            protocol.INSTANCE_HEADER: self._instance,
            protocol.PARTICIPANT_HEADER: name,
        }
        if secret:
            self._headers["Authorization"] = f"Bearer {secret}"
        self._peer = HTTPPeer(address, max_response_bytes=protocol.MAX_MESSAGE_BYTES, route=route)
        self._where = f"aggregator at {address.host}:{address.port}"
        self._layout = Layout(())
        self._encoding = Encoding()
        self._max_pieces = 1  # in one request, as the aggregator says
        self._fetching, self._upload_pace = bundles.Pace(), bundles.Pace()
        self._logged_problem = ""  # the last logged problem, "" when the aggregator answers
        self._outages = 0
        self._is_closed = threading.Event()
        self._heartbeat = Heartbeat(self._beat)
        self.sent_bytes = self.received_bytes = 0  # bytes of weights

    # ---- life -----------------------------------------------------------------------------------

    def join(self, layout: Layout) -> None:
        """Join, and wait until the aggregator can be reached. Raises: FederationError"""
        self._layout = layout
        self._join()

    def close(self, *, will_return: bool = False) -> None:
        """Leave the federation, and tell the aggregator if it can be reached.

        Args: will_return: do not tell the aggregator, because a restarted process will join again
        """
        self._is_closed.set()
        self._heartbeat.close(self._leave_timeout_s / 2)
        if not will_return:
            self._exchange("DELETE", self._participant, timeout_s=self._leave_timeout_s)
        self._peer.close()

    def _join(self) -> None:
        try:
            self._welcome(self._answer("POST", self._participant, self._join_body()))
        except (_NotJoined, RoundClosed, Damaged) as error:  # a second try would fail, too
            raise FederationError(str(error)) from error

    def _join_body(self) -> bytes:
        return protocol.encode(Join(self._layout, self._instance))

    def _welcome(self, body: bytes) -> None:
        welcome = self._decoded(body, Welcome)
        self._encoding, self._max_pieces = welcome.encoding, welcome.max_pieces
        self._heartbeat.set_period(welcome.beat_s)

    def _beat(self) -> None:
        """Send a beat. If the aggregator was restarted, join again before it closes a round."""
        path = f"{self._participant}/beat"
        heard, _ = self._exchange("POST", path, timeout_s=BEAT_TIMEOUT_S)
        if heard is None or heard.status != 404 or self._is_closed.is_set():
            return
        response, _ = self._exchange("POST", self._participant, self._join_body())
        # The first thread gets the same refusal, and raises it.
        if response is not None and response.status == 200:
            with contextlib.suppress(FederationError):
                self._welcome(response.body)

    # ---- rounds ---------------------------------------------------------------------------------

    def next_round(self) -> RoundState:
        """Wait for the next round that needs this participant, or for the end of the last round.

        Raises: FederationError
        """
        path = f"/v1/round?participant={self._name}&wait={WAIT_S:g}"
        while True:
            state = self._decoded(self._call("GET", path), RoundState)
            if state.is_finished or state.is_yours:
                return state

    def fetch(self, round_: int, numbers: int) -> Vector:
        """Fetch the model with which the round starts. Raises: RoundClosed, FederationError"""
        vector = np.empty(numbers, dtype=np.float32)
        piece, total = 0, protocol.pieces(numbers)
        while piece < total:
            count = self._fetching.pieces(min(self._max_pieces, total - piece))
            fetch = functools.partial(self._fetch_pieces, round_, vector, piece, count)
            piece += self._resending(fetch, _Resends())
        return vector

    def send(self, round_: int, vector: Numbers, *, commit: Commit) -> None:
        """Send this participant's update. Raises: RoundClosed, WeightsError, FederationError"""
        resends = _Resends()
        self._resending(functools.partial(self._send, round_, vector, commit, resends), resends)

    def skip_round(self, round_: int, commit: Commit) -> None:
        """Take part in this round without samples. Raises: RoundClosed, FederationError"""
        self._call("POST", f"{self._update(round_)}/commit", protocol.encode(commit))

    # ---- parts ----------------------------------------------------------------------------------

    @property
    def _participant(self) -> str:
        return f"/v1/participants/{self._name}"

    def _update(self, round_: int) -> str:
        return f"/v1/rounds/{round_}/updates/{self._name}"

    def _send(self, round_: int, vector: Numbers, commit: Commit, resends: "_Resends") -> None:
        encoding = self._encoding  # a restarted aggregator may ask for another encoding
        protocol.check_fits(vector, self._layout, encoding)
        update = bundles.Update(vector, encoding)
        path = self._update(round_)
        piece = self._offer(path, update.offer, resends)
        while piece < update.pieces:
            most = min(update.most(self._max_pieces), update.pieces - piece)
            count = self._upload_pace.pieces(most)
            if self._send_pieces(path, range(piece, piece + count), update):
                piece += count
            else:  # a part of the bundle may have arrived
                piece = self._offer(path, update.offer, resends)
        whole = msgspec.structs.replace(commit, checksum=update.offer.checksum)
        self._call("POST", f"{path}/commit", protocol.encode(whole))

    def _offer(self, path: str, offer: Offer, resends: "_Resends") -> int:
        """The number of pieces that the aggregator has already."""
        body = self._call("POST", path, protocol.encode(offer))
        progress = self._decoded(body, Received)
        resends.note_progress(progress.pieces)
        return progress.pieces

    def _send_pieces(self, path: str, pieces: range, update: bundles.Update) -> bool:
        """Returns: False after a bundle that failed: then the next piece travels alone"""
        began_s = time.monotonic()
        body: bytes | Parts
        if len(pieces) == 1:
            body = update.piece(pieces[0])
            self._call("PUT", f"{path}/{pieces[0]}", body)
        else:
            body = update.bundle(pieces)
            # A bundle is never sent again: a piece that travels alone finds out what is wrong.
            answer, _ = self._exchange("PUT", f"{path}/{pieces[0]}-{pieces[-1]}", body)
            if answer is None or answer.status != 200:
                self._upload_pace.note_failure()
                return False
        self._upload_pace.note_success(time.monotonic() - began_s)
        self.sent_bytes += len(body)
        return True

    def _fetch_pieces(self, round_: int, vector: Vector, first: int, count: int) -> int:
        """Returns: how many pieces came; 0 after a bundle that failed: then one travels alone"""
        began_s = time.monotonic()
        path = f"/v1/rounds/{round_}/model/{first}"
        if count == 1:
            self._unpack(self._call("GET", path), vector, first)
        else:
            count = self._fetch_bundle(f"{path}-{first + count - 1}", vector, first, count)
            if not count:
                self._fetching.note_failure()
                return 0
        self._fetching.note_success(time.monotonic() - began_s)
        return count

    def _fetch_bundle(self, path: str, vector: Vector, first: int, count: int) -> int:
        """Returns: how many pieces came, each of which is in `vector`"""
        pieces = 0

        def receive(answer: http.client.HTTPResponse) -> None:
            nonlocal pieces
            for _, packed in zip(range(count), bundles.split(answer.readinto), strict=False):
                self._unpack(packed, vector, first + pieces)
                pieces += 1

        with contextlib.suppress(Damaged):  # what came before the damage is whole
            self._exchange("GET", path, receive=receive)
        return pieces

    def _unpack(self, packed: Data, vector: Vector, piece: int) -> None:
        """Write a packed piece of the model into `vector`. Raises: Damaged"""
        self.received_bytes += len(packed)
        encoding, start = self._encoding, piece * protocol.PIECE_NUMBERS
        count = protocol.numbers_of(piece, len(vector))
        data = protocol.unpacked(packed, numbers=count, encoding=encoding)
        vector[start : start + count] = protocol.from_wire(data, encoding)

    def _resending(self, attempt: Callable[[], T], resends: "_Resends") -> T:
        """Run `attempt` again after damage. Raises: FederationError, the errors of `attempt`"""
        while True:
            try:
                return attempt()
            except Damaged as error:
                if not resends.rest:
                    raise FederationError(f"{self._where}: {error}") from error
                log.warning("damaged on the way, once more: %s", error)
                resends.rest -= 1

    def _call(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Send a request. If the aggregator does not know this participant, join, and send again.

        Raises: RoundClosed, Damaged, FederationError
        """
        retries, outages = MAX_REJOINS, self._outages
        while True:
            try:
                return self._answer(method, path, body)
            except _NotJoined as error:
                if outages != self._outages:  # after an outage the aggregator may be a new process
                    retries, outages = MAX_REJOINS, self._outages
                if not retries:
                    raise FederationError(str(error)) from error
                log.info("joining again: the aggregator does not know this participant")
                self._join()
                retries -= 1

    def _answer(self, method: str, path: str, body: bytes) -> bytes:
        """Send until an answer comes. Raises: _NotJoined, RoundClosed, Damaged, FederationError"""
        backoff = Backoff(base_s=0.2, max_s=10.0, floor_s=0.05)
        while True:
            response, problem = self._exchange(method, path, body)
            if response is not None and response.status == 200:
                self._log_change("")
                return response.body
            if response is not None and response.status < 500:
                raise self._refusal(response)
            self._log_change(problem)
            at_least_s = response.retry_after_s if response is not None else 0.0
            if self._is_closed.wait(backoff.next_s(at_least_s=at_least_s)):
                raise FederationError(f"{self._where}: closed")

    def _exchange(
        self,
        method: str,
        path: str,
        body: bytes | Parts = b"",
        *,
        receive: Callable[[http.client.HTTPResponse], None] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> tuple[Response | None, str]:
        """Returns: the answer or None, and a text that says what is wrong."""
        request = Request(
            method=method, path=path, body=body, headers=self._headers, receive=receive
        )
        try:
            response = self._peer.exchange(request, Deadline(timeout_s))
        except ExchangeError as error:
            return None, error.detail
        return response, f"HTTP {response.status} {_error_text(response)}"

    def _refusal(self, response: Response) -> Exception:
        words = _error_text(response)
        classes = {400: Damaged, 404: _NotJoined, 409: RoundClosed}
        return classes.get(response.status, FederationError)(f"{self._where} refuses: {words}")

    def _decoded(self, body: bytes, type_: type[Message]) -> Message:
        try:
            return protocol.decode(body, type_)
        except Damaged as error:
            raise FederationError(f"{self._where}: {error}") from error

    def _log_change(self, problem: str) -> None:
        """Log only changes, because in a long outage many attempts fail for one reason."""
        self._outages += bool(problem and not self._logged_problem)
        if problem and problem != self._logged_problem:
            log.warning("waiting for the %s: %s", self._where, problem)
        elif self._logged_problem and not problem:
            log.info("the %s answers again", self._where)
        self._logged_problem = problem


class _Resends:
    """`rest`: how many damaged transfers in a row are still allowed."""

    def __init__(self) -> None:
        self.rest = MAX_RESENDS
        self._pieces = 0

    def note_progress(self, pieces: int) -> None:
        """Reset `rest` after progress: a long update may be damaged more often in all."""
        if pieces > self._pieces:
            self._pieces, self.rest = pieces, MAX_RESENDS


def _error_text(response: Response) -> str:
    try:
        return str(msgspec.json.decode(response.body, type=dict[str, str])["error"])[:500]
    except (msgspec.DecodeError, KeyError):
        return response.body[:200].decode(errors="replace")
