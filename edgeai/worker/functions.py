"""What the pods of `serve` and `federate` run: each public function is the whole work of a worker.

They print a line of JSON for each point of a curve: {"event": "metrics", "round": 3, "loss": 0.25}.
"""

import inspect
import json
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from edgeai.worker.big_model_service import BigModelService
from edgeai.worker.federated.aggregator import RoundResult
from edgeai.worker.federated.environment import from_environ
from edgeai.worker.federated.estimator import save_model
from edgeai.worker.federated.learning import FederatedLearning
from edgeai.worker.federated.rounds import RoundSettings
from edgeai.worker.federated.server import AggregationServer
from edgeai.worker.hard_example_mining import Decision
from edgeai.worker.joint_inference import JointInference
from edgeai.worker.results import InferenceResult
from edgeai.worker.tensors import Array

CLOUD_WAIT_S: Final = 30.0
FLUSH_S: Final = 5.0
POINT_S: Final = 1.0
"""Least time between two points of the counts."""

Model = Callable[..., Any]
"""From a batch to one answer for each row. Or a class with such a method, `predict`, and with or
without `load`, which gets the path of the model."""
Fit = Callable[[Mapping[str, Array] | None, Any], Any]
"""From weights by name, and data, to new weights, or to a pair of these and metrics by name. From
None to the weights that training begins with."""


def serve_cloud(model: Model) -> None:
    """Answer the hard examples of the edge, until SIGTERM."""
    _log()
    BigModelService(_Estimator(model)).serve()


def serve_edge(
    model: Model,
    inputs: Callable[[], Iterable[Any]],
    outputs: Callable[[Any, list[InferenceResult]], object] | None,
    is_hard: Callable[[Any], bool] | None,
) -> None:
    """Answer all batches of `inputs`, and then wait for SIGTERM.

    Args:
        outputs: gets each batch and its results
        is_hard: of an answer of the model; None: the algorithm that the service names
    """
    _log()
    _exit_at_sigterm(0)
    mining = None if is_hard is None else lambda answer: Decision(is_hard(answer), None, "function")
    with JointInference(_Estimator(model), mining) as joint:
        joint.wait_for_cloud(CLOUD_WAIT_S)
        due_s = time.monotonic() + POINT_S
        for batch in inputs():
            results = joint.inference(batch)
            if outputs is not None:
                outputs(batch, results)
            if time.monotonic() >= due_s:
                _print_point(msgspec.to_builtins(joint.counts))
                due_s = time.monotonic() + POINT_S
        joint.flush(FLUSH_S)
        _print_point(msgspec.to_builtins(joint.counts))
        while True:
            signal.pause()  # the reporter's thread continues to send heartbeats


class _Estimator:
    def __init__(self, model: Model) -> None:
        is_class = inspect.isclass(getattr(model, "func", model))
        self._object = model() if is_class else None
        self._predict: Model = getattr(self._object, "predict", model)

    def load(self, model_url: str) -> None:
        if load := getattr(self._object, "load", None):
            load(model_url)

    def predict(self, batch: Array) -> Sequence[Any] | Array:
        answers: Sequence[Any] | Array = self._predict(batch)
        return answers


def aggregate(rounds: int, aggregation: str) -> None:
    """Join the weights of all trainers in each round. Args: aggregation: a name"""
    _log()
    expected = from_environ(os.environ).participants
    settings = RoundSettings(
        rounds=rounds, expected_participants=expected, min_participants=min(2, expected)
    )
    AggregationServer(aggregation, settings=settings, stop_when=_print_round).serve()


def _print_round(result: RoundResult) -> bool:
    _print_point({"round": result.round, **result.metrics})
    return False


def train(fit: Fit, load: Callable[[str], Any] | None) -> None:
    """Train in each round on the Dataset of this node.

    Args: load: from a path to data, the length of which is the number of samples. None: for a CSV
        file of numbers with a header, which becomes an array (samples, columns)
    """
    _log()
    _exit_at_sigterm(1)  # a code other than 0: the kubelet starts the container again
    csv = partial(np.loadtxt, delimiter=",", skiprows=1, ndmin=2)
    data = (load or csv)(from_environ(os.environ).dataset_url)
    FederatedLearning(_Learner(fit, data)).train(data)


class _Learner:
    def __init__(self, fit: Fit, data: Any) -> None:
        self._fit = fit
        self._weights, _ = _weights_and_metrics(fit(None, data))

    def train(self, *, train_data: Any, **_options: Any) -> Mapping[str, float]:
        self._weights, metrics = _weights_and_metrics(self._fit(self._weights, train_data))
        return metrics

    def evaluate(self, data: Any, **_options: Any) -> Mapping[str, float]:
        return {}

    def get_weights(self) -> dict[str, Array]:
        return self._weights

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        self._weights = dict(weights)

    def load(self, model_url: str) -> None:
        """The job has no pretrained model."""

    def save(self, model_url: str) -> None:
        # Nodes may share the file system: a reader never gets an incomplete model.
        own = Path(f"{model_url}.{secrets.token_hex(4)}")
        save_model(self._weights, None, str(own))
        own.replace(model_url)


def _weights_and_metrics(result: Any) -> tuple[dict[str, Array], Mapping[str, float]]:
    weights, metrics = result if isinstance(result, tuple) else (result, {})
    return {name: np.asarray(array) for name, array in weights.items()}, metrics


def _print_point(numbers: Mapping[str, float]) -> None:
    print(json.dumps({"event": "metrics", **numbers}), flush=True)


def _log() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")


def _exit_at_sigterm(code: int) -> None:
    """Leave the `with` blocks, which send the last report."""

    def stop(_number: int, _frame: Any) -> None:
        raise SystemExit(code)

    signal.signal(signal.SIGTERM, stop)
