"""From Python functions to joint inference and federated learning, on the local cluster."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeai.cli.environment import Environment
from edgeai.client import Client, InvalidObject, Model, NotPossible, federate, serve

TIMEOUT_S = 90.0
ROUNDS = 30


@pytest.fixture
def client(running: Environment) -> Iterator[Client]:
    with Client(running.kubeconfig) as client:
        yield client


def numbers() -> Iterator[list[list[float]]]:
    for first in range(0, 100, 10):
        yield [[float(number)] for number in range(first, first + 10)]


def small(batch: Any) -> list[list[float]]:
    return [[0.9, 0.1] if row[0] < 75 else [0.5, 0.5] for row in batch]


class Large:
    def __init__(self, sign: int) -> None:
        self.sign = sign

    def load(self, path: str) -> None:
        import pathlib

        self.factor = self.sign * float(pathlib.Path(path).read_text())

    def predict(self, batch: Any) -> Any:
        return batch * self.factor


def unsure(answer: Any) -> bool:
    return bool(max(answer) < 0.8)


def show(batch: Any, results: Any) -> None:
    for row, result in zip(batch, results, strict=True):
        print("answer", row[0], float(result.answer[0]), result.answered_by.value)


def test_hard_examples_of_one_function_are_answered_by_another(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "factor").write_text("2.0")
    service = serve(
        small,
        partial(Large, sign=-1),
        inputs=numbers,
        outputs=show,
        hard_examples=unsure,
        cloud_model=str(tmp_path / "factor"),
        on=["edge1"],
        name="functions",
        client=client,
    )
    assert service.wait(timeout_s=TIMEOUT_S).result == "succeeded"
    service.resource = client.wait(service.resource, _has_seen_all, timeout_s=TIMEOUT_S)
    assert service.metrics()["answeredByCloud"] == 25
    assert service.resource.status.edge_nodes == "edge1"
    lines = [line.text for line in service.logs(worker="edge") if "answer" in line.text]
    assert ("answer 74.0 0.9 edge" in lines, "answer 80.0 -160.0 cloud" in lines) == (True, True)
    assert service.history()[-1]["uploaded"] == 25
    assert "<svg" in service._repr_html_()
    with pytest.raises(NotPossible, match="delete it"):
        service.suspend()
    with pytest.raises(InvalidObject, match="'functions' is taken"):
        serve(small, small, inputs=numbers, name="functions", client=client)
    service.delete()
    client.wait(service.resource, "deleted", timeout_s=TIMEOUT_S)
    assert _models_are_gone(client)


def _has_seen_all(service: Any) -> bool:
    return any(each.key == "seen" and each.value == "100" for each in service.status.metrics)


def _models_are_gone(client: Client) -> bool:
    for model in client.list(Model):
        client.wait(model, "deleted", timeout_s=TIMEOUT_S)
    return True


def fit(weights: Any, rows: Any, rate: float) -> Any:
    import numpy

    if weights is None:
        return {"slope": numpy.zeros(1)}
    inputs, targets = rows[:, 0], rows[:, 1]
    error = inputs * weights["slope"] - targets
    step = rate * (error * inputs).mean()
    return {"slope": weights["slope"] - step}, {"loss": float((error**2).mean())}


def test_nodes_train_a_function_together(client: Client, tmp_path: Path) -> None:
    data = {node: tmp_path / f"{node}.csv" for node in ("edge0", "edge1")}
    for slope, path in zip((2, 4), data.values(), strict=True):
        path.write_text("x,y\n" + "".join(f"{x},{slope * x}\n" for x in (1, 2)))
    job = federate(
        fit,
        {node: str(path) for node, path in data.items()},
        args={"rate": 0.2},
        rounds=ROUNDS,
        model=str(tmp_path / "model" / "line.npz"),
        client=client,
    )
    assert job.wait(timeout_s=TIMEOUT_S).result == "succeeded"
    with np.load(tmp_path / "model" / "line.npz") as weights:
        assert float(weights["slope"][0]) == pytest.approx(3, abs=0.01)
    history = job.history()
    assert [point["round"] for point in history] == list(range(1, ROUNDS + 1))
    assert history[0]["loss"] > history[-1]["loss"] == pytest.approx(2.5, abs=0.1)
    assert "<svg" in job._repr_html_()
    with pytest.raises(NotPossible, match="change its spec"):
        job.scale(3)
    job.delete()
    client.wait(job.resource, "deleted", timeout_s=TIMEOUT_S)
    assert _models_are_gone(client)
