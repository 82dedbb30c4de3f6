"""What a trainer tells the LocalController of its node."""

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from edgeai.worker.environment import Address, LCServer
from edgeai.worker.federated.client import AggregatorClient
from edgeai.worker.federated.environment import FederationEnvironment
from edgeai.worker.federated.learning import FederatedLearning
from edgeai.worker.federated.protocol import Commit, RoundState
from edgeai.worker.federated.rounds import SEED
from tests.edgeai.worker.federated.conftest import Federation, MakeFederation, own, running
from tests.edgeai.worker.federated.mean import Mean
from tests.edgeai.worker.federated.scripted import Asked, ScriptedAggregator
from tests.edgeai.worker.federated.test_faults import ONE
from tests.edgeai.worker.federated.test_federation import settings, trainer
from tests.edgeai.worker.peers import LOOPBACK, LocalController

DATA = [3.0, 3.0]


@pytest.fixture
def controller() -> Iterator[LocalController]:
    with LocalController() as controller:
        yield controller


def reporting(
    environment: FederationEnvironment, controller: LocalController
) -> FederationEnvironment:
    server = LCServer(Address(LOOPBACK, int(controller.server_address[1])), "/w/secret")
    return msgspec.structs.replace(environment, lc_server=server, report_period_s=0.01)


def last_words(federation: Federation, controller: LocalController) -> dict[str, Any]:
    """Of a trainer that takes part to the end."""
    environment = reporting(federation.trainer("told"), controller)
    FederatedLearning(Mean(), environment=environment).train(DATA, valid_data=DATA)
    message: dict[str, Any] = controller.messages[-1]
    assert message["status"] == "completed"
    info: dict[str, Any] = message["output"]["taskInfo"]
    names = ("currentRound", "rounds", "sampleCount", "metrics.error")
    return {name: info.get(name) for name in names}


def test_what_training_gave_is_told(controller: LocalController) -> None:
    with ScriptedAggregator() as aggregator:

        def script(asked: Asked) -> None:
            if asked.what.endswith("/commit"):
                aggregator.state = RoundState(4, 3, is_finished=True)

        aggregator.script = script
        environment = reporting(aggregator.environment, controller)
        FederatedLearning(Mean(), environment=environment).train(DATA)
    info = controller.messages[-1]["output"]["taskInfo"]
    assert info["metrics.trained"] == 1.0


def test_an_early_end_is_told_with_the_round_that_was_the_last(
    federation: MakeFederation, controller: LocalController
) -> None:
    aggregator = federation(
        settings=settings(1, rounds=5), stop_when=lambda result: result.round == 2
    )
    assert last_words(aggregator, controller) == {
        "currentRound": 2,
        "rounds": 5,
        "sampleCount": 2,
        "metrics.error": 0.0,
    }


def test_a_process_that_saw_no_round_but_the_end_tells_all_of_it(
    federation: MakeFederation, controller: LocalController
) -> None:
    """As one does whose predecessor was killed with the result in hand."""
    aggregator = federation(settings=settings(2, min_participants=1, rounds=3, deadline_s=0.2))
    waiting = AggregatorClient(aggregator.server.address, name="waiting", secret=own("waiting"))
    waiting.join(ONE)
    waiting.send(SEED, np.zeros(3, dtype=np.float32), commit=Commit("", 1))
    with running(trainer(aggregator, "first", Mean(), DATA)):
        pass
    assert last_words(aggregator, controller) == {
        "currentRound": 3,
        "rounds": 3,
        "sampleCount": 2,
        "metrics.error": 0.0,
    }
    waiting.close()
    assert aggregator.join() is True
