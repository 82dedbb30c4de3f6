"""What a trainer's estimator is told, and what a trainer makes of a round that is closed to it."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

from edgeai.backoff import Backoff
from edgeai.worker.federated import protocol
from edgeai.worker.federated.layout import Weights
from edgeai.worker.federated.learning import FederatedLearning
from edgeai.worker.federated.protocol import Commit, RoundState
from tests.edgeai.worker.federated.conftest import MakeFederation, running
from tests.edgeai.worker.federated.mean import Mean
from tests.edgeai.worker.federated.scripted import Answer, Asked, ScriptedAggregator
from tests.edgeai.worker.federated.test_federation import settings, trainer
from tests.support.waiting import eventually

CLOSED: Answer = (409, b'{"error": "the round is over"}')
COMMIT = "POST /v1/rounds/1/updates/a/commit"


class InPlace(Mean):
    """Trains the very arrays that it was given, as a framework does that shares their memory."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[int] = []
        self.drifts: list[float] = []

    def begin_round(self, number: int, weights: Weights) -> None:
        assert isinstance(weights, Mapping)
        self.begun.append(number)
        self._start = weights["mean"]

    def train(self, **_: Any) -> Mapping[str, float]:
        self.weights["mean"] += 1
        self.drifts.append(float(self.weights["mean"][0] - self._start[0]))
        return {}


def test_an_estimator_that_trains_in_place_still_knows_what_the_round_started_from(
    federation: MakeFederation,
) -> None:
    """FedProx pulls it back there: a drift of 0 would pull nothing."""
    estimator = InPlace()
    with running(trainer(federation(settings=settings(1)), "a", estimator, [1.0])):
        pass
    assert estimator.begun == [1, 2]
    assert estimator.drifts == [1.0, 1.0]


@pytest.mark.parametrize("round_", [0, 1])
def test_a_round_that_stays_closed_is_not_tried_in_a_hot_loop(
    aggregator: ScriptedAggregator, round_: int
) -> None:
    def script(asked: Asked) -> Answer | None:
        return CLOSED if asked.what.endswith("/updates/a") else None

    aggregator.script, aggregator.state = script, RoundState(round_, 3, is_yours=True)
    offer = f"POST /v1/rounds/{round_}/updates/a"
    learning = FederatedLearning(Mean(), environment=aggregator.environment)
    with running(lambda: learning.train([1.0])):
        eventually("three offers", lambda: aggregator.count(offer) == 3)
        aggregator.state = RoundState(3, 3, is_finished=True)
    moments = [asked.at_s for asked in aggregator.asked if asked.what == offer]
    assert min(later - earlier for earlier, later in pairwise(moments)) >= 0.1


def test_another_round_is_waited_for_from_anew(aggregator: ScriptedAggregator) -> None:
    """A round that was closed three times is no reason to wait for long in the next."""
    limits: list[float] = []

    def shortest(low: float, high: float) -> float:
        limits.append(high)
        return low

    def script(asked: Asked) -> Answer | None:
        if not asked.what.endswith("/updates/a"):
            return None
        if aggregator.count(asked.what) == 3:
            next_ = aggregator.state.round + 1
            aggregator.state = RoundState(next_, 3, is_yours=True, is_finished=next_ == 3)
        return CLOSED

    aggregator.script = script
    pauses = Backoff(base_s=0.5, max_s=30.0, uniform=shortest)
    FederatedLearning(Mean(), environment=aggregator.environment, pauses=pauses).train([1.0])
    assert limits == [0.5, 1.0, 0.5, 1.0]


class Measuring(Mean):
    def train(self, **_: Any) -> Any:
        return {"loss": np.float32(0.5), "perplexity": np.nan, "best": np.inf, "note": "good"}


def test_only_finite_numbers_are_told_as_metrics(aggregator: ScriptedAggregator) -> None:
    learning = FederatedLearning(Measuring(), environment=aggregator.environment)
    with running(lambda: learning.train([1.0])):
        eventually("a commit", lambda: aggregator.count(COMMIT) > 0)
        aggregator.state = RoundState(3, 3, is_finished=True)
    told = next(asked.body for asked in aggregator.asked if asked.what == COMMIT)
    assert msgspec.msgpack.decode(told, type=Commit).metrics == {"loss": 0.5}


def test_the_metrics_of_the_result_are_given_back(aggregator: ScriptedAggregator) -> None:
    """The result is the scripted aggregator's: zeros."""
    aggregator.state = RoundState(3, 3, is_finished=True)
    learning = FederatedLearning(Mean(), environment=aggregator.environment)
    assert learning.train([1.0], valid_data=[4.0]) == {"error": 4.0}
    bytes_of_a_model = protocol.CRC_BYTES + 12
    assert learning.transferred_bytes == (0, bytes_of_a_model)
