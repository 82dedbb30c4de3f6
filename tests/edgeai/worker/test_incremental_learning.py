from pathlib import Path
from typing import Any

import pytest

from edgeai.worker import EstimatorError, IncrementalLearning
from edgeai.worker.incremental_learning import LearningEnvironment, from_environ


class Scripted:
    """Gives `result` as the result of each training and evaluation."""

    def __init__(self, result: Any) -> None:
        self.result = result

    def load(self, model_url: str) -> None: ...

    def save(self, model_url: str) -> None:
        Path(model_url).touch()

    def train(self, train_data: Any, **_options: Any) -> Any:
        return self.result

    def evaluate(self, data: Any, **_options: Any) -> Any:
        return self.result

    def predict(self, batch: Any) -> list[Any]:
        return list(batch)


@pytest.fixture
def environment(tmp_path: Path) -> LearningEnvironment:
    variables = {"MODEL_URL": str(tmp_path / "model"), "MODEL_URLS": "new;deployed"}
    return from_environ(variables)


def test_each_model_is_evaluated(environment: LearningEnvironment) -> None:
    learning = IncrementalLearning(Scripted({"precision": 1}), environment=environment)
    assert learning.evaluate([1.0]) == [{"precision": 1.0}] * 2


@pytest.mark.parametrize(("result", "type_"), [(None, "NoneType"), (0.9, "float")])
def test_an_evaluation_without_metrics_says_what_to_return(
    environment: LearningEnvironment, result: Any, type_: str
) -> None:
    learning = IncrementalLearning(Scripted(result), environment=environment)
    with pytest.raises(EstimatorError) as raised:
        learning.evaluate([1.0])
    assert str(raised.value) == (
        f"Scripted.evaluate gave {type_}; "
        'give a dict with a number for each metric, as {"accuracy": 0.9}'
    )


@pytest.mark.parametrize("result", [None, {}, 0.25, object()])
def test_a_training_needs_no_metrics(environment: LearningEnvironment, result: Any) -> None:
    learning = IncrementalLearning(Scripted(result), environment=environment)
    assert learning.train([1.0]) == {}
    assert Path(environment.model_url, "model").exists()
