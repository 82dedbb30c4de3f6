"""Makes the decisions of the aggregator, from the rounds, the store and the clock.

Thread-safe. Refused has the HTTP status and a text for the participant, and harms no round.
"""

import contextlib
import functools
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from edgeai.worker.deadline import Deadline
from edgeai.worker.errors import AggregationError, WeightsError
from edgeai.worker.federated import bundles, protocol
from edgeai.worker.federated import layout as layouts
from edgeai.worker.federated.aggregations import Aggregation
from edgeai.worker.federated.participants import Participants
from edgeai.worker.federated.protocol import (
    Commit,
    Damaged,
    Data,
    Join,
    Offer,
    RoundState,
    Welcome,
)
from edgeai.worker.federated.rounds import FIRST, SEED, Rounds, RoundSettings
from edgeai.worker.federated.store import NotFinite, RoundOver, RoundStore

log = logging.getLogger(__name__)

MAX_CHECKED: Final = 4  # pieces at a time: checking one takes several times its bytes
RECENT_PIECES: Final = 8  # kept encoded: trainers fetch a model side by side
MAX_DISPLACED: Final = 4096  # displaced processes that the aggregator remembers
BEATS: Final = 3  # number of beats that a participant sends within gone_after_s


class Refused(Exception):
    """The aggregator refuses a request. `status` is the HTTP status: 400 the body is damaged, 403
    the participant may not take part, 404 the participant has not joined, 409 the round is over,
    410 another process has taken the name, 422 the content is not acceptable, 507 the disk is full
    """

    def __init__(self, status: int, problem: str) -> None:
        self.status, self.problem = status, problem
        super().__init__(problem)


class RoundResult(msgspec.Struct, frozen=True):
    """The result of a closed round, for the user's `stop_when` and the log."""

    round: int
    samples: dict[str, int]
    """Number of samples by participant."""
    metrics: dict[str, float]
    """Means of the participants' metrics, weighted by samples."""


StopRule = Callable[[RoundResult], bool]


class Aggregator:
    """Args:
        participants: who may take part; None: everybody
        max_wait_s: longest wait of a participant in one request, seconds

    Raises: AggregationError, OSError
    """

    def __init__(
        self,
        store: RoundStore,
        aggregation: Aggregation,
        settings: RoundSettings,
        *,
        participants: Participants | None = None,
        max_wait_s: float = 30.0,
    ) -> None:
        self._store = store
        self._max_wait_s = max_wait_s
        self._aggregation = aggregation
        self._settings = _settings_for(aggregation, settings)
        self._seed_change = threading.Lock()  # held while the seed becomes the model
        self._adopt(store.commits() if store.state.round == SEED else ())
        self._rounds = Rounds(self._settings, now_s=time.monotonic(), number=store.state.round)
        self._change = threading.Condition()  # guards the rounds
        self._taking_part = threading.Lock()  # held during a join or leave, and its writes
        self._pieces = functools.lru_cache(RECENT_PIECES)(self._packed_piece)
        self._checking = threading.BoundedSemaphore(MAX_CHECKED)
        for name, commit in store.commits().items():
            self._rounds.note_update(name, commit.samples, time.monotonic())
        self._rounds.expect_again((*store.state.recipients, *store.commits()), time.monotonic())
        self._instances: dict[str, str] = {}  # by name: the process that takes part
        # The (name, process) pairs that a newer process of the name displaced, oldest first.
        self._displaced: dict[tuple[str, str], None] = {}
        self._participants = participants or Participants()

    # ---- for participants -----------------------------------------------------------------------

    def join(self, name: str, join: Join) -> Welcome:
        """A newer process displaces an older process with the same name. Raises: Refused"""
        if not self._participants.may_join(name):
            raise Refused(403, f"the job has no training worker {name}")
        with self._refusing():
            layouts.check(join.layout, max_numbers=protocol.MAX_NUMBERS)
            with self._taking_part:
                with self._change:
                    self._require_current(name, join.instance)
                    self._require_layout(name, join.layout)
                    self._displace(name, join.instance)
                    self._rounds.join(name, time.monotonic())
                    self._change.notify_all()
                # Write outside the condition, so that beats do not wait for the disk.
                self._store.add_recipient(name)
        log.info("participant joined: name=%s instance=%s", name, join.instance)
        beat_s = self._settings.gone_after_s / BEATS
        return Welcome(self._store.state.encoding, beat_s, bundles.MAX_PIECES)

    def require_joined(self, instance: str, *, name: str) -> None:
        """Raises: Refused if the process `instance` of `name` has not joined, or was displaced

        Args:
            instance: the process that sent the request; "": the request names no process
            name: the participant that sent the request; "": the request names none
        """
        with self._change:
            self._require_current(name, instance)
            if name and instance and self._instances.get(name) != instance:
                raise Refused(404, "this process has not joined: join first")

    def note_beat(self, name: str) -> None:
        """Raises: Refused"""
        with self._change:
            self._require_joined(name)

    def leave(self, name: str, *, instance: str = "") -> None:
        """Raises: Refused"""
        with self._refusing(), self._taking_part:
            self._require_current(name, instance)
            self._store.remove_recipient(name)
            with self._change:
                self._rounds.leave(name)
                self._change.notify_all()

    def state_for(self, name: str, *, after: int, wait_s: float, instance: str = "") -> RoundState:
        """Wait up to `wait_s` for a round later than `after` that needs `name`. Raises: Refused"""
        deadline = Deadline(min(wait_s, self._max_wait_s))
        with self._change:
            while True:
                self._require_current(name, instance)
                self._require_joined(name)
                state = self._state_for(name)
                if state.is_finished or (state.is_yours and state.round > after):
                    return state
                if not self._change.wait(deadline.left_s()):
                    return self._state_for(name)

    def model_piece(self, round_: int, piece: int) -> bytes:
        """One encoded piece of the model. Raises: Refused"""
        return b"".join(self._piece_of(round_, piece))

    def model_pieces(self, round_: int, pieces: range) -> Iterator[tuple[bytes, Data]]:
        """Checksum and content of these pieces, up to the end of the model or of the round.

        Raises: Refused if there is not one of them
        """
        first = [self._piece_of(round_, piece) for piece in pieces[:1]]
        return itertools.chain(first, self._rest(round_, pieces[1:]))

    def _rest(self, round_: int, pieces: range) -> Iterator[tuple[bytes, Data]]:
        with contextlib.suppress(Refused):
            for piece in pieces:
                yield self._piece_of(round_, piece)

    def _piece_of(self, round_: int, piece: int) -> tuple[bytes, Data]:
        with self._refusing():
            if round_ != self._store.state.round:
                raise RoundOver(f"round {round_} is over")
            checksum, content = self._pieces(round_, piece)
        if not content:
            raise Refused(404, f"the model has no piece {piece}")
        return checksum, content

    def _packed_piece(self, _round: int, piece: int) -> tuple[bytes, Data]:
        """Without content: there is none. Raises: OSError"""
        data = self._store.model_piece(piece)
        if not data:
            return b"", b""
        return protocol.crc(data), protocol.content(data, self._store.state.encoding)

    def offer(self, name: str, round_: int, offer: Offer) -> int:
        """The number of stored pieces of the update that is offered. Raises: Refused"""
        with self._refusing():
            if round_ == SEED:
                self._adopt_seed()  # an earlier attempt may have failed on a full disk
            with self._change:
                self._require_joined(name)
                if round_ == SEED and self._rounds.seeder(time.monotonic()) != name:
                    raise RoundOver("another participant gives the first weights")
            return self._store.offer(round_, name, offer)

    def receive(self, name: str, round_: int, piece: int, body: Data) -> None:
        """Raises: Refused"""
        self.note_beat(name)
        encoding, numbers = self._store.state.encoding, self._store.numbers
        with self._refusing(), self._checking:
            count = protocol.numbers_of(piece, numbers)
            if not count:
                raise Damaged(f"the update has no piece {piece}")
            data = protocol.unpacked(body, numbers=count, encoding=encoding)
            part = protocol.from_wire(data, encoding)
            start = piece * protocol.PIECE_NUMBERS
            layouts.check_finite(part, start, self._store.state.layout)
            self._store.write_piece(round_, name, piece, data, bytes(body[: protocol.CRC_BYTES]))

    def commit(self, name: str, round_: int, commit: Commit) -> None:
        """Raises: Refused"""
        self.note_beat(name)
        commit = self._within_limit(name, commit)
        finite = {key: value for key, value in commit.metrics.items() if math.isfinite(value)}
        with self._refusing():
            self._store.commit(round_, name, msgspec.structs.replace(commit, metrics=finite))
            if round_ == SEED:
                self._adopt_seed()
        with self._change:
            if round_ == self._rounds.number:  # otherwise this update has closed the round
                self._rounds.note_update(name, commit.samples, time.monotonic())
            self._change.notify_all()
        log.info("update received: name=%s round=%d samples=%d", name, round_, commit.samples)

    # ---- for the loop ---------------------------------------------------------------------------

    def seed(self, weights: layouts.Weights) -> None:
        """Start from these weights, unless there is a model already.

        Call seed() before the first join. Raises: OSError, WeightsError
        """
        if self._store.state.round == SEED:
            layout = layouts.layout_of(weights)
            self._store.seed(layouts.FlatWeights(weights, layout)[:], layout)
            with self._change:
                self._rounds.begin(FIRST, time.monotonic())

    @property
    def is_finished(self) -> bool:
        return self._store.state.is_finished

    @property
    def is_concluded(self) -> bool:
        """The result is saved, and all participants have it or are gone."""
        return self._store.state.is_concluded

    def wait_until_closing(self, timeout_s: float) -> bool:
        """Wait until the round may be closed. Returns: whether it may be closed"""
        with self._change:
            return self._change.wait_for(
                lambda: self._rounds.can_close(time.monotonic()), timeout=timeout_s
            )

    def obstacle(self) -> str:
        """Why the round cannot close although all present participants have sent; else ""."""
        with self._change:
            return self._rounds.obstacle(time.monotonic())

    def close_round(self, stop_when: StopRule) -> RoundResult:
        """Aggregate, and begin the next round.

        Raises: OSError, AggregationError, the errors of stop_when
        """
        self._store.close()
        weights = self._weights()
        result = self._result(weights)
        is_last = stop_when(result) or result.round >= self._settings.rounds
        with self._change:
            recipients = sorted(self._rounds.present(time.monotonic()))
        try:
            self._store.aggregate(
                self._aggregation, weights, is_last=is_last, recipients=recipients
            )
        except NotFinite as error:  # a second try would fail, too
            if is_last and not self._store.state.has_learned:
                raise  # a model that was never trained is no result
            log.error("round keeps its model: round=%d problem=%s", result.round, error)
            self._store.keep_model(is_last=is_last, recipients=recipients)
        with self._change:
            self._rounds.begin(self._store.state.round, time.monotonic())
            self._change.notify_all()
            newcomers = self._rounds.present(time.monotonic()).difference(recipients)
        for name in newcomers:  # they joined during the aggregation
            self._store.add_recipient(name)
        return result

    def wait_until_all_left(self, timeout_s: float) -> bool:
        """Wait until no participant is present. A participant leaves with the final model."""
        with self._change:
            return self._change.wait_for(
                lambda: not self._rounds.present(time.monotonic()), timeout=timeout_s
            )

    def conclude(self) -> None:
        """Remove all files except the record. Call this after saving the result. Raises: OSError"""
        self._store.conclude()

    def model(self) -> layouts.Weights:
        return layouts.restore(self._store.model(), self._store.state.layout)

    # ---- parts ----------------------------------------------------------------------------------

    def _within_limit(self, name: str, commit: Commit) -> Commit:
        """The commit with at most as many samples as the participant's Dataset has."""
        limit = self._participants.limit(name)
        if limit is None or commit.samples <= limit:
            return commit
        log.warning(
            "more samples than in the Dataset: name=%s samples=%d counted=%d",
            *(name, commit.samples, limit),
        )
        return msgspec.structs.replace(commit, samples=limit)

    def _state_for(self, name: str) -> RoundState:
        number, rounds = self._rounds.number, self._settings.rounds
        if self._store.state.is_finished:
            return RoundState(number, rounds, is_finished=True)
        if self._store.is_closed or number != self._store.state.round:
            is_yours = False  # the next model is being computed
        elif number == SEED:
            is_yours = self._rounds.seeder(time.monotonic()) == name
        else:
            is_yours = not self._rounds.has_sent(name)
        return RoundState(number, rounds, is_yours=is_yours)

    def _require_layout(self, name: str, layout: layouts.Layout) -> None:
        """All participants must have the layout of the first. Raises: WeightsError, OSError"""
        others = self._rounds.present(time.monotonic()) - {name}
        if self._store.state.round == SEED and not others:
            self._store.set_layout(layout)
        expected = self._store.state.layout
        if layout != expected:
            difference = layouts.difference(layout, expected)
            raise WeightsError(f"this is no model of this federation: {difference}")

    def _require_current(self, name: str, instance: str) -> None:
        if (name, instance) in self._displaced:
            problem = f"another process takes part as {name}: WORKER_NAME is one for each trainer"
            raise Refused(410, problem)

    def _displace(self, name: str, instance: str) -> None:
        before = self._instances.get(name, instance)
        self._instances[name] = instance
        if before and before != instance:
            self._displaced[name, before] = None
            while len(self._displaced) > MAX_DISPLACED:
                del self._displaced[next(iter(self._displaced))]
            log.warning("participant displaced by a newer process: name=%s", name)

    def _adopt_seed(self) -> None:
        with self._seed_change:
            if self._store.state.round == SEED and self._adopt(self._store.commits()):
                with self._change:
                    self._rounds.begin(FIRST, time.monotonic())
                    self._change.notify_all()

    def _adopt(self, committed: Iterable[str]) -> bool:
        """Make a committed seed the first model. Returns: whether there was a seed"""
        name = next(iter(committed), None)
        if name is not None:
            self._store.adopt_seed(name)
        return name is not None

    def _require_joined(self, name: str) -> None:
        if not self._rounds.note_beat(name, time.monotonic()):
            raise Refused(404, f"participant {name} has not joined: join first")

    def _weights(self) -> dict[str, int]:
        """Participant -> the number of samples with which its update counts in this round."""
        claims = {name: commit.samples for name, commit in self._store.commits().items()}
        weights = self._participants.weights(claims)
        bounded = [name for name, number in claims.items() if number > weights.get(name, 0)]
        if bounded:
            log.warning(
                "updates weigh less than their trainers tell: participants=%d first=%s samples=%d "
                "weight=%d remedy=%s",
                *(len(bounded), bounded[0], claims[bounded[0]], weights.get(bounded[0], 0)),
                "see condition Accepted of the job",
            )
        return weights

    def _result(self, weights: Mapping[str, int]) -> RoundResult:
        commits = self._store.commits()
        keys = sorted({key for commit in commits.values() for key in commit.metrics})
        return RoundResult(
            round=self._store.state.round,
            samples={name: weights.get(name, 0) for name in commits},
            metrics={key: _mean(key, commits, weights) for key in keys},
        )

    @contextlib.contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except RoundOver as error:
            raise Refused(409, str(error)) from error
        except Damaged as error:
            raise Refused(400, str(error)) from error
        except WeightsError as error:
            raise Refused(422, str(error)) from error
        except OSError as error:
            log.exception("the aggregator's directory cannot be used")
            raise Refused(507, f"the aggregator cannot keep it: {error.strerror}") from error


def _settings_for(aggregation: Aggregation, settings: RoundSettings) -> RoundSettings:
    """Raises: AggregationError"""
    least_updates, expected = aggregation.least_updates, settings.expected_participants
    if least_updates > expected:
        problem = f"needs {least_updates} participants, and {expected} are expected"
        raise AggregationError(aggregation.name, problem)
    least = max(settings.min_participants, least_updates)
    return msgspec.structs.replace(settings, min_participants=least)


def _mean(key: str, commits: Mapping[str, Commit], weights: Mapping[str, int]) -> float:
    """The mean of a metric over the participants that sent it, weighted by their samples."""
    names = [name for name, commit in commits.items() if key in commit.metrics]
    total = sum(weights.get(name, 0) for name in names)
    if not total:
        return 0.0
    return sum(commits[name].metrics[key] * weights.get(name, 0) for name in names) / total
