"""A trainer. FederatedLearning(estimator).train(images) is a complete worker.

A trainer joins the job's aggregator and takes part in all rounds. In each round the trainer sets
the common weights and trains them here. Only weights, metrics and counts leave the node.
"""

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from edgeai.backoff import Backoff
from edgeai.errors import EdgeAIError
from edgeai.worker.federated import layout as layouts
from edgeai.worker.federated.client import AggregatorClient, RoundClosed
from edgeai.worker.federated.environment import (
    FederationEnvironment,
    from_environ,
    own_secret,
    require_participant,
)
from edgeai.worker.federated.estimator import FederatedEstimator, RoundAware
from edgeai.worker.federated.protocol import MAX_METRICS, MAX_NAME_CHARS, Commit, RoundState
from edgeai.worker.federated.rounds import SEED
from edgeai.worker.reporter import reporter_from
from edgeai.worker.results import finite_numbers
from edgeai.worker.transport import choose

log = logging.getLogger(__name__)

LAST_REPORT_S: Final = 10.0

NO_INFO: Final[Mapping[str, int | float | str]] = {}  # info of reports before the first round
_numbers: Final = partial(finite_numbers, most=MAX_METRICS, max_chars=MAX_NAME_CHARS)


class FederatedLearning:
    """Args:
        environment: None: this process's environment variables
        pauses: delays before the next try after a round closed without this participant

    Raises: SettingsError
    """

    def __init__(
        self,
        estimator: FederatedEstimator,
        *,
        environment: FederationEnvironment | None = None,
        pauses: Backoff | None = None,
    ) -> None:
        self._environment = environment or from_environ(os.environ)
        address, name = require_participant(self._environment)
        self._estimator = estimator
        secret = own_secret(self._environment)
        route = choose(address, self._environment)
        self._client = AggregatorClient(address, name=name, secret=secret, route=route)
        self._reporter = reporter_from(
            self._environment, phase="train", info=NO_INFO, facts={"transport": route.transport}
        )
        # The last round that closed before the update of this participant arrived.
        self._closed_round: int | None = None
        self._pauses = pauses or Backoff(base_s=0.5, max_s=30.0, floor_s=0.1)
        self._is_over = False  # the aggregator has said that the last round is over

    @property
    def transferred_bytes(self) -> tuple[int, int]:
        """Bytes of weights: (sent, received)."""
        return self._client.sent_bytes, self._client.received_bytes

    def train(self, train_data: Any, valid_data: Any = None, **options: Any) -> dict[str, float]:
        """Take part in all rounds, then set and save the final weights. Returns: the final metrics

        Args:
            train_data: data of this node; len() is the number of samples, the weight of the update
            valid_data: for an evaluation of the common weights in each round; None: no evaluation
            options: arguments for the estimator's train()
        Raises: FederationError, WeightsError; the errors of the estimator
        """
        with self._reporting():
            layout = layouts.layout_of(self._estimator.get_weights())
            self._client.join(layout)
            while True:
                state = self._next_round()
                try:
                    if state.is_finished:
                        return self._finish(state, layout, len(train_data), valid_data)
                    self._take_part(state, layout, train_data, valid_data, options)
                except RoundClosed:
                    log.info("the round was closed without this participant")
                    self._closed_round = state.round

    def _next_round(self) -> RoundState:
        """The next round. Pause while the round that closed without this trainer is the newest."""
        state = self._client.next_round()
        if state.round != self._closed_round:
            self._pauses.reset()
            return state
        time.sleep(self._pauses.next_s())
        return self._client.next_round()

    def _take_part(
        self,
        state: RoundState,
        layout: layouts.Layout,
        train_data: Any,
        valid_data: Any,
        options: Mapping[str, Any],
    ) -> None:
        samples = len(train_data)
        self._report(currentRound=state.round, rounds=state.rounds, sampleCount=samples)
        if state.round == SEED:
            weights = layouts.FlatWeights(self._estimator.get_weights(), layout)
            self._client.send(SEED, weights, commit=Commit("", samples))
            return
        self._set_common_weights(state.round, layout)
        metrics = self._evaluate(valid_data)
        if not samples:
            self._client.skip_round(state.round, Commit("", 0, metrics))
            return
        result = self._estimator.train(train_data=train_data, valid_data=valid_data, **options)
        metrics |= _numbers(result)
        weights = layouts.FlatWeights(self._estimator.get_weights(), layout)
        self._client.send(state.round, weights, commit=Commit("", samples, metrics))
        self._report(metrics)

    def _set_common_weights(self, round_: int, layout: layouts.Layout) -> None:
        vector = self._client.fetch(round_, layout.size)
        if not isinstance(self._estimator, RoundAware):
            self._estimator.set_weights(layouts.restore(vector, layout))
            return
        copy = vector.copy()  # the estimator may change the arrays of set_weights in place
        self._estimator.set_weights(layouts.restore(vector, layout))
        self._estimator.begin_round(round_, layouts.restore(copy, layout))

    def _finish(
        self, state: RoundState, layout: layouts.Layout, samples: int, valid_data: Any
    ) -> dict[str, float]:
        self._is_over = True
        vector = self._client.fetch(state.round, layout.size)
        self._estimator.set_weights(layouts.restore(vector, layout))
        metrics = self._evaluate(valid_data)
        if self._environment.model_url:
            self._estimator.save(self._environment.model_url)
        # Report all numbers, because this process may not have reported any round.
        last = state.round - 1  # the round whose updates made this model
        self._report(metrics, currentRound=last, rounds=state.rounds, sampleCount=samples)
        return metrics

    def _evaluate(self, valid_data: Any) -> dict[str, float]:
        return {} if valid_data is None else _numbers(self._estimator.evaluate(valid_data))

    def _report(self, metrics: Mapping[str, float] | None = None, **numbers: int) -> None:
        """Report currentRound, rounds, sampleCount, bytes and metrics.*"""
        if self._reporter is None:
            return
        news = {
            **numbers,
            **{f"metrics.{key}": value for key, value in (metrics or {}).items()},
            "sentBytes": self._client.sent_bytes,
            "receivedBytes": self._client.received_bytes,
        }
        self._reporter.change(lambda info: {**info, **news})

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """Send a last report, which says whether the training completed or failed."""
        status: Any = "failed"
        try:
            yield
            status = "completed"
        except EdgeAIError as error:
            log.error("this participant cannot go on: %s", error)
            raise
        finally:
            # Kubernetes restarts a failed trainer, which must then still find the result.
            self._client.close(will_return=self._is_over and status == "failed")
            if self._reporter is not None:
                self._reporter.close(LAST_REPORT_S, status=status)
