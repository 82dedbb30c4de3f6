"""Trainers and an aggregator over real sockets, from the first weights to the saved result."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeai.worker.errors import FederationError
from edgeai.worker.federated.learning import FederatedLearning
from edgeai.worker.federated.protocol import Encoding
from edgeai.worker.federated.rounds import RoundSettings
from tests.edgeai.worker.federated.conftest import Federation, MakeFederation, running
from tests.edgeai.worker.federated.mean import Mean

DATA = {"a": [1.0] * 10, "b": [4.0] * 20, "c": [10.0] * 30}
MEAN_OF_ALL = (10 + 80 + 300) / 60


def settings(participants: int, **fields: Any) -> RoundSettings:
    fields = {"rounds": 2, "min_participants": participants, **fields}
    return RoundSettings(expected_participants=participants, **fields)


def trainer(federation: Federation, name: str, estimator: Mean, data: list[float]) -> Any:
    learning = FederatedLearning(estimator, environment=federation.trainer(name))
    return lambda: learning.train(data, valid_data=data or None)


def take_part(federation: Federation, data: Mapping[str, list[float]]) -> dict[str, Mean]:
    """All of them at once. Their estimators."""
    estimators = {name: Mean() for name in data}
    work = [trainer(federation, name, estimators[name], data[name]) for name in data]
    with running(*work):
        pass
    return estimators


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_three_trainers_learn_the_mean_of_all_data(
    federation: MakeFederation, tmp_path: Path, precision: Any, compression: Any
) -> None:
    encoding = Encoding(precision, compression)
    aggregator = federation(settings=settings(3), encoding=encoding)
    estimators = take_part(aggregator, DATA)
    for name, estimator in estimators.items():
        assert estimator.weights["mean"] == pytest.approx([MEAN_OF_ALL] * 3, rel=1e-3), name
        assert estimator.trained == 2
    assert aggregator.join() is True
    assert np.load(tmp_path / "final.npz")["mean"] == pytest.approx([MEAN_OF_ALL] * 3, rel=1e-3)


def test_a_wrong_secret_is_refused_in_words(federation: MakeFederation) -> None:
    aggregator = federation(settings=settings(1))
    learning = FederatedLearning(
        Mean(), environment=aggregator.trainer("spy", secret="of another job")
    )
    with pytest.raises(FederationError, match="the secret is not this participant's"):
        learning.train([1.0])
