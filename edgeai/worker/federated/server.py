"""The aggregator's worker. AggregationServer("FedAvg").serve() is a whole program.

The aggregator waits for participants, closes rounds and keeps its state in a directory. It ends
when the last round is closed and every participant has the final model. A restarted aggregator goes
on with the round that it finds in the directory. At the end the aggregator removes its files,
except a record that the federation is over. An aggregator that finds this record ends at once.
"""

import hmac
import logging
import math
import os
import queue
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple
from urllib.parse import SplitResult, parse_qs, urlsplit

import msgspec

from edgeai.errors import SettingsError
from edgeai.ids import is_subdomain
from edgeai.open_files import allow_open_files
from edgeai.participants import participant_secret
from edgeai.worker.bounded_server import BoundedHandler, BoundedServer, RequestRefused, ServerLimits
from edgeai.worker.deadline import Deadline
from edgeai.worker.environment import Address
from edgeai.worker.errors import WeightsError
from edgeai.worker.federated import bundles, protocol
from edgeai.worker.federated.aggregations import Aggregation, named
from edgeai.worker.federated.aggregator import Aggregator, Refused, RoundResult, StopRule
from edgeai.worker.federated.environment import FederationEnvironment, from_environ, require_secret
from edgeai.worker.federated.estimator import FederatedEstimator, require_savable, save_model
from edgeai.worker.federated.participants import Participants
from edgeai.worker.federated.protocol import Commit, Data, Encoding, Join, Offer, Received
from edgeai.worker.federated.rounds import RoundSettings
from edgeai.worker.federated.store import RoundStore
from edgeai.worker.stop_signals import handling_stop_signals

log = logging.getLogger(__name__)

MAX_PARTICIPANTS: Final = 500
LIMITS: Final = ServerLimits(
    max_connections=2 * MAX_PARTICIPANTS + 200,  # two for each: one waits, the other sends beats
    max_request_bytes=protocol.MAX_MESSAGE_BYTES,
    read_timeout_s=60.0,
    write_timeout_s=60.0,
)
POLL_S: Final = 0.2  # longest delay until the loop notices a round's deadline
MAX_NAME: Final = 240  # the name plus an ending is a file name
MSGPACK: Final = "application/msgpack"


class AggregationServer:
    """The constructor begins to listen; serve() runs the rounds.

    Args:
        aggregation: a name of edgeai.worker.federated.aggregations, or your own Aggregation
        estimator: loads the first weights from PRETRAINED_MODEL_URL, and saves the result. Without
            PRETRAINED_MODEL_URL the first participant gives the first weights. None: the result
            is saved as a NumPy archive
        settings: numbers of rounds and participants; None: PARTICIPANTS_COUNT gives the number of
            participants
        encoding: how weights are encoded on the wire
        stop_when: called after each round; True ends the federation after this round
        linger_s: longest wait of serve() after the last round, until all present participants
            have the result; a participant that is silent for gone_after_s is not present
        environment: None: this process's environment variables
        limits: of the HTTP server
        warn_period_s: how often the log says why a round cannot close
    Raises: SettingsError, AggregationError
    """

    def __init__(
        self,
        aggregation: str | Aggregation = "FedAvg",
        *,
        estimator: FederatedEstimator | None = None,
        settings: RoundSettings | None = None,
        encoding: Encoding | None = None,
        stop_when: StopRule = lambda _result: False,
        linger_s: float = 300.0,
        environment: FederationEnvironment | None = None,
        limits: ServerLimits = LIMITS,
        warn_period_s: float = 60.0,
    ) -> None:
        self._limits, self._warn_period_s = limits, warn_period_s
        self._environment = environment or from_environ(os.environ)
        require_secret(self._environment)
        require_savable(self._environment.model_url, estimator)
        self._estimator = estimator
        self._stop_when = stop_when
        self._linger_s = linger_s
        settings = settings or RoundSettings(expected_participants=self._environment.participants)
        algorithm = named(aggregation) if isinstance(aggregation, str) else aggregation
        store = _open(self._environment, encoding or Encoding())
        participants = Participants(self._environment.participants_file)
        self._aggregator = Aggregator(store, algorithm, settings, participants=participants)
        self._server = _Server.listen(
            self._environment.bind, _Handler, limits, variables="AGG_BIND_IP, AGG_BIND_PORT"
        )
        self._server.aggregator = self._aggregator
        self._server.secret = self._environment.secret.value
        self._stop_requests: queue.SimpleQueue[str] = queue.SimpleQueue()

    @property
    def address(self) -> Address:
        return self._server.address

    def serve(self) -> bool:
        """Run the federation. Returns: True after its end; False after stop()

        Raises: OSError (the directory), AggregationError, WeightsError (of the pretrained model),
            the errors of estimator and stop_when; SystemExit at SIGTERM or SIGINT before the end,
            because an exit status of 0 would tell Kubernetes that the work is done
        """
        with self._server, handling_stop_signals(self._stop_requests.put):
            if self._aggregator.is_concluded:
                log.info("the federation is over: its result was saved and handed over before")
                return True
            allow_open_files(self._limits.max_connections + MAX_PARTICIPANTS + 100)
            self._seed()  # first: without a seed, a participant gives the weights
            with self._server.accepting():
                log.info("aggregator listens: address=%s:%d", *self.address)
                if self._run_rounds() and self._deliver_result():
                    self._conclude()
                    return True
                return self._stopped()

    def stop(self) -> None:
        """Make serve() return. Callable from any thread."""
        self._stop_requests.put("stop() was called")

    def _seed(self) -> None:
        url = self._environment.pretrained_model_url
        if url and self._estimator is None:
            problem = "names a model, but AggregationServer was given no estimator to load it"
            raise SettingsError("environment variable PRETRAINED_MODEL_URL", problem)
        if url and self._estimator is not None:
            self._estimator.load(url)
            self._aggregator.seed(self._estimator.get_weights())

    def _run_rounds(self) -> bool:
        patience = Deadline(self._warn_period_s)
        while not self._aggregator.is_finished:
            if not self._stop_requests.empty():
                return False
            if self._aggregator.wait_until_closing(POLL_S):
                _log_closed(self._aggregator.close_round(self._stop_when))
                patience = Deadline(self._warn_period_s)
            elif not patience.left_s():
                if obstacle := self._aggregator.obstacle():
                    log.warning("the round cannot close: %s", obstacle)
                patience = Deadline(self._warn_period_s)
        return True

    def _deliver_result(self) -> bool:
        """Save the result and wait until every present participant has fetched it.

        Returns: False if serve() was stopped before that
        """
        save_model(self._aggregator.model(), self._estimator, self._environment.model_url)
        end_s = time.monotonic() + self._linger_s
        while not self._aggregator.wait_until_all_left(POLL_S):
            if not self._stop_requests.empty():
                return False
            if time.monotonic() >= end_s:
                log.warning("the end was not fetched by every participant")
                break
        return True

    def _conclude(self) -> None:
        try:
            self._aggregator.conclude()
        except OSError as error:  # the result is saved already
            log.warning("the rounds' files are left behind: %s", error)

    def _stopped(self) -> bool:
        reason = self._stop_requests.get()
        log.info("stopping before the end: reason=%s", reason)
        if reason in signal.Signals.__members__:
            raise SystemExit(128 + signal.Signals[reason])
        return False


def _log_closed(result: RoundResult) -> None:
    log.info(
        "round closed: round=%d participants=%d samples=%d metrics_before_update=%s",
        result.round,
        len(result.samples),
        sum(result.samples.values()),
        result.metrics,
    )


def _open(environment: FederationEnvironment, encoding: Encoding) -> RoundStore:
    try:
        return RoundStore(environment.state_dir, encoding)
    except (OSError, msgspec.DecodeError) as error:
        raise SettingsError(
            "environment variable FEDERATION_STATE_DIR",
            f"{environment.state_dir} cannot be used: {error}; set it to a directory that can be "
            "written to, or empty it to begin anew",
        ) from error


class _Server(BoundedServer):
    aggregator: Aggregator
    secret: str


class _Handler(BoundedHandler):
    server: _Server
    is_authenticated = False

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        self._answer()

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - http.server's names

    def _answer(self) -> None:
        try:
            self._authenticate()
            answer = self._route(*self._body())
            if isinstance(answer, bytes):
                self.reply(200, answer, MSGPACK)
            else:
                self.reply_in_chunks(answer, MSGPACK)
        except Refused as refusal:
            self.refuse(RequestRefused(refusal.status, refusal.problem))
        except WeightsError as error:
            self.refuse(RequestRefused(400, str(error)))
        except RequestRefused as refusal:
            self.refuse(refusal)

    def _authenticate(self) -> None:
        header = self.headers.get("Authorization", "")
        secret = participant_secret(self.server.secret, self._sender())
        expected = f"Bearer {secret}"
        if self.server.secret and not hmac.compare_digest(header.encode(), expected.encode()):
            problem = (
                "the secret is not this participant's: PARTICIPANT_SECRET and WORKER_NAME belong "
                "together, and without PARTICIPANT_SECRET the JOB_SECRET is the aggregator's"
            )
            raise RequestRefused(401, problem, is_last=True)
        self.note_authenticated()

    def _sender(self) -> str:
        return self.headers.get(protocol.PARTICIPANT_HEADER, "")

    def _route(self, body: bytes, pieces: Iterator[Data]) -> bytes | Iterator[Data]:
        url = self._url()
        for method, pattern, answer in _ROUTES:
            match = pattern.fullmatch(url.path)
            if match and method == self.command:
                instance = self.headers.get(protocol.INSTANCE_HEADER, "")
                if answer not in (_join, _leave):
                    self.server.aggregator.require_joined(instance, name=self._sender())
                call = _Call.of(match, body, pieces, url.query, instance)
                if self.server.secret and call.name not in ("", self._sender()):
                    raise Refused(403, f"participant {call.name} can only speak for itself")
                return answer(self.server.aggregator, call)
        raise Refused(404, f"no such path: {self.command} {url.path[:200]}")

    def _body(self) -> tuple[bytes, Iterator[Data]]:
        """The body, and its pieces. Those of a bundle are read one by one, when they are wanted."""
        if self.command == "PUT" and _BUNDLE.search(self.path):
            self.begin_request_body(bundles.MAX_BYTES)
            return b"", bundles.split(self.read_request_into)
        body = self.read_request_body() if self.command in ("POST", "PUT") else b""
        return body, iter((body,))

    def _url(self) -> SplitResult:
        try:
            return urlsplit(self.path)
        except ValueError as error:
            raise Refused(400, f"no such path: {error}") from error


class _Call(NamedTuple):
    body: bytes
    pieces: Iterator[Data]
    query: dict[str, str]
    name: str
    round: int
    piece: int
    last: int
    instance: str

    @classmethod
    def of(
        cls, match: re.Match[str], body: bytes, pieces: Iterator[Data], query: str, instance: str
    ) -> "_Call":
        """Raises: Refused"""
        parameters = {key: values[0] for key, values in parse_qs(query).items()}
        path = match.groupdict()
        name = path.get("name") or parameters.get("participant", "")
        if name and not is_subdomain(name):
            raise Refused(400, f"participant {name[:100]!r}: a name is like trainer-0")
        if len(name) > MAX_NAME:
            raise Refused(
                422, f"participant {name[:20]}…: a name has {MAX_NAME} characters at most"
            )
        round_, piece, last = (int(path.get(key) or 0) for key in ("round", "piece", "last"))
        return cls(body, pieces, parameters, name, round_, piece, last, instance)

    def number(self, key: str, default: float) -> float:
        """Raises: Refused"""
        try:
            value = float(self.query.get(key, default))
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise Refused(400, f"{key}={self.query[key][:100]!r} is no number")
        return value


# ---- one function for each path -----------------------------------------------------------------


def _join(aggregator: Aggregator, call: _Call) -> bytes:
    return protocol.encode(aggregator.join(call.name, protocol.decode(call.body, Join)))


def _beat(aggregator: Aggregator, call: _Call) -> bytes:
    aggregator.note_beat(call.name)
    return b""


def _leave(aggregator: Aggregator, call: _Call) -> bytes:
    aggregator.leave(call.name, instance=call.instance)
    return b""


def _round(aggregator: Aggregator, call: _Call) -> bytes:
    after, wait_s = int(call.number("after", -1)), max(0.0, call.number("wait", 0.0))
    return protocol.encode(
        aggregator.state_for(call.name, after=after, wait_s=wait_s, instance=call.instance)
    )


def _model(aggregator: Aggregator, call: _Call) -> bytes:
    return aggregator.model_piece(call.round, call.piece)


def _bundle(aggregator: Aggregator, call: _Call) -> Iterator[Data]:
    end = min(call.last + 1, call.piece + bundles.MAX_PIECES)
    return bundles.joined(aggregator.model_pieces(call.round, range(call.piece, end)))


def _offer(aggregator: Aggregator, call: _Call) -> bytes:
    offer = protocol.decode(call.body, Offer)
    return protocol.encode(Received(aggregator.offer(call.name, call.round, offer)))


def _update(aggregator: Aggregator, call: _Call) -> bytes:
    for piece, body in enumerate(call.pieces, start=call.piece):
        aggregator.receive(call.name, call.round, piece, body)
    return b""


def _commit(aggregator: Aggregator, call: _Call) -> bytes:
    aggregator.commit(call.name, call.round, protocol.decode(call.body, Commit))
    return b""


_NUMBER: Final = r"[0-9]{1,9}"
_PARTICIPANT: Final = r"/v1/participants/(?P<name>[^/]+)"
_MODEL: Final = rf"/v1/rounds/(?P<round>{_NUMBER})/model/(?P<piece>{_NUMBER})"
_LAST: Final = rf"-(?P<last>{_NUMBER})"
_UPDATE: Final = rf"/v1/rounds/(?P<round>{_NUMBER})/updates/(?P<name>[^/]+)"
_BUNDLE: Final = re.compile(f"/{_NUMBER}{_LAST}$")
_Answer = Callable[[Aggregator, _Call], bytes | Iterator[Data]]
_ROUTES: Final[list[tuple[str, re.Pattern[str], _Answer]]] = [
    ("POST", re.compile(_PARTICIPANT), _join),
    ("POST", re.compile(f"{_PARTICIPANT}/beat"), _beat),
    ("DELETE", re.compile(_PARTICIPANT), _leave),
    ("GET", re.compile("/v1/round"), _round),
    ("GET", re.compile(_MODEL), _model),
    ("GET", re.compile(f"{_MODEL}{_LAST}"), _bundle),
    ("POST", re.compile(_UPDATE), _offer),
    ("PUT", re.compile(rf"{_UPDATE}/(?P<piece>{_NUMBER})({_LAST})?"), _update),
    ("POST", re.compile(f"{_UPDATE}/commit"), _commit),
]
