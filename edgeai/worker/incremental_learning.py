"""The workers of an IncrementalLearningJob: one that trains, one that evaluates, one that answers.

    IncrementalLearning(MyEstimator()).train(samples)
    IncrementalLearning(MyEstimator()).evaluate(samples)
    with IncrementalLearning(MyEstimator()) as learning:
        for result in learning.inference(batch): ...

Each worker is a process of its own. train() and evaluate() end with a report, which the job needs.
A worker whose report nobody takes fails, and the job tries again.
"""

import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple, Protocol, Self

import msgspec

from edgeai.errors import EdgeAIError
from edgeai.worker import environment as environments
from edgeai.worker import tensors
from edgeai.worker.bucket import Bucket
from edgeai.worker.environment import WorkerEnvironment, wrong
from edgeai.worker.errors import EstimatorError
from edgeai.worker.estimator import Estimator
from edgeai.worker.hard_example_mining import HardExampleMining
from edgeai.worker.hot_model import FixedModel, HotModel
from edgeai.worker.joint_inference import mining_from
from edgeai.worker.local_model import ContentError, ModelSource, ModelVersion
from edgeai.worker.reporter import Reporter, reporter_from
from edgeai.worker.results import finite_numbers

COUNTS: Final = ("seen", "hard")
FIRST_REPORT_S: Final = 300.0
"""Seconds in which the result must be reported. The LocalController may be starting."""
LAST_REPORT_S: Final = 2.0
_metrics: Final = partial(finite_numbers, most=12, max_chars=40)
"""Those of two models, beside the counts: a status keeps 32 numbers of a worker."""


class NotReported(EdgeAIError):
    """The LocalController has not taken the result, so the job cannot know it."""

    def __init__(self) -> None:
        super().__init__("the LocalController has not taken the result of this worker in time")


class LearningEstimator(Estimator, Protocol):
    """A model that learns."""

    def train(self, train_data: Any, **options: Any) -> Mapping[str, float] | None:
        """Train on `train_data`. Returns: metrics"""

    def evaluate(self, data: Any, **options: Any) -> Mapping[str, float]:
        """The metrics of the loaded model."""

    def save(self, model_url: str) -> None:
        """Save the model to this path."""


class LearningEnvironment(WorkerEnvironment, frozen=True, kw_only=True):
    """Settings of a worker. Empty text: the variable is not set. `model_url` is the directory for
    the trained model, or the model to answer with.
    """

    base_model_url: str = ""
    """BASE_MODEL_URL: the model to train on"""
    model_urls: tuple[str, ...] = ()
    """MODEL_URLS, divided by ";": the new model and the deployed one, to evaluate"""
    data_path_prefix: str = ""
    """DATA_PATH_PREFIX: where the pod has the directories of the node"""
    hot_config: str = ""
    """MODEL_HOT_UPDATE_CONFIG: the file that names the model; "": MODEL_URL is the model"""
    model_directory: str = ""
    """MODEL_DIRECTORY: below it this file names the models of rounds"""


def from_environ(environ: Mapping[str, str]) -> LearningEnvironment:
    """Parse `environ`, usually os.environ. Raises: SettingsError"""
    is_hot = environ.get("MODEL_HOT_UPDATE", "").lower() == "true"
    urls = map(str.strip, environ.get("MODEL_URLS", "").split(";"))
    return LearningEnvironment(
        **msgspec.structs.asdict(environments.from_environ(environ)),
        base_model_url=environ.get("BASE_MODEL_URL", ""),
        model_urls=tuple(filter(None, urls)),
        data_path_prefix=environ.get("DATA_PATH_PREFIX", ""),
        model_directory=environ.get("MODEL_DIRECTORY", ""),
        hot_config=environ.get("MODEL_HOT_UPDATE_CONFIG", "") if is_hot else "",
    )


class Answer(NamedTuple):
    """The answer for one sample."""

    answer: Any
    is_hard: bool
    score: float | None
    """See hard_example_mining.Decision."""
    model_version: int | None
    """The round that has trained the model; 0: the Model of the job; None: it is not loaded hot."""


class IncrementalLearning:
    """Args:
        hard_example_mining: None: the algorithm of HEM_NAME and HEM_PARAMETERS; without HEM_NAME no
            sample is hard
        environment: None: this process's environment variables
        model_name: file name of a trained model

    Raises: SettingsError
    """

    def __init__(
        self,
        estimator: LearningEstimator,
        hard_example_mining: HardExampleMining | None = None,
        *,
        environment: LearningEnvironment | None = None,
        model_name: str = "model",
    ) -> None:
        self._environment = environment or from_environ(os.environ)
        self._estimator = estimator
        self._mining = hard_example_mining
        self._model_name = model_name
        self._model: FixedModel | HotModel | None = None
        self._reporter: Reporter[dict[str, int]] | None = None
        self._starting = threading.Lock()

    # ---- train and eval ---------------------------------------------------------------------

    def train(self, train_data: Any, **options: Any) -> dict[str, float]:
        """Train on the base model, save, and report. Returns: the metrics

        Args: options: arguments for the estimator's train()
        Raises: NotReported; SettingsError; the errors of the estimator, and of obstore for a bucket
        """
        environment = self._environment
        if not environment.model_url:
            raise wrong("MODEL_URL", "is not set; set it to where the model is saved")
        # Before the training, which may be long.
        is_remote = "://" in environment.model_url
        bucket = Bucket(environment.model_url, os.environ) if is_remote else None
        place = TemporaryDirectory() if bucket else nullcontext(environment.model_url)
        with place as directory:
            if environment.base_model_url and Path(environment.base_model_url).exists():
                self._estimator.load(environment.base_model_url)
            metrics = _metrics(self._estimator.train(train_data, **options))
            target = Path(directory) / self._model_name
            target.parent.mkdir(parents=True, exist_ok=True)
            self._estimator.save(str(target))
            if bucket:
                bucket.save(Path(directory))
        url = f"{environment.model_url.rstrip('/')}/{self._model_name}"
        self._report_results("train", [(url, metrics)])
        return metrics

    def evaluate(self, data: Any, **options: Any) -> list[dict[str, float]]:
        """Evaluate the new model and the deployed one, and report. Returns: the metrics of each

        Args: options: arguments for the estimator's evaluate()
        Raises: EstimatorError, NotReported; SettingsError; the errors of the estimator
        """
        if not self._environment.model_urls:
            raise wrong("MODEL_URLS", "is not set; set it to the models to evaluate, with ;")
        results = []
        for url in self._environment.model_urls:
            self._estimator.load(url)
            results.append((url, self._evaluate(data, options)))
        self._report_results("eval", results)
        return [metrics for _, metrics in results]

    def _evaluate(self, data: Any, options: Mapping[str, Any]) -> dict[str, float]:
        metrics: Any = self._estimator.evaluate(data, **options)
        if isinstance(metrics, Mapping):
            return _metrics(metrics)
        raise EstimatorError(
            f"{type(self._estimator).__name__}.evaluate gave {type(metrics).__name__}; "
            'give a dict with a number for each metric, as {"accuracy": 0.9}'
        )

    def _report_results(self, phase: str, results: Iterable[tuple[str, dict[str, float]]]) -> None:
        """Raises: NotReported"""
        info: dict[str, float | str] = {}
        for index, (path, metrics) in enumerate(results):
            info[f"results.{index}.url"] = path.removeprefix(self._environment.data_path_prefix)
            info[f"results.{index}.format"] = PurePosixPath(path).suffix.lstrip(".")
            prefix = f"metrics.{index}." if index else "metrics."
            info |= {f"{prefix}{name}": value for name, value in metrics.items()}
        reporter = reporter_from(self._environment, phase=phase, info=info)
        if reporter is not None and not reporter.close(FIRST_REPORT_S, status="completed"):
            raise NotReported

    # ---- inference --------------------------------------------------------------------------

    def inference(self, batch: Any) -> list[Answer]:
        """One answer for each row of `batch`, an array of numbers; [] for an empty batch.

        Raises: TensorError, EstimatorError, MiningError, SettingsError; errors of the estimator
        """
        samples = tensors.as_samples(batch)
        if not len(samples):
            return []
        with self._starting:
            model, mining = self._model or self._start(), self._mining
        assert mining is not None  # `_start` has made sure
        predicted = model.predict(samples)
        answers = []
        for answer in predicted.answers:
            decision = mining(answer)
            answers.append(Answer(answer, decision.is_hard, decision.score, predicted.version))
        hard = sum(answer.is_hard for answer in answers)
        self._count(seen=len(answers), hard=hard)
        return answers

    def _start(self) -> FixedModel | HotModel:
        environment = self._environment
        self._mining = self._mining or mining_from(environment)
        info = dict.fromkeys(COUNTS, 0)
        self._reporter = reporter_from(environment, phase="inference", info=info, counts=COUNTS)
        if environment.hot_config:
            if not environment.model_directory:
                raise wrong("MODEL_DIRECTORY", "is not set: give the job an outputDir on the node")
            source = ModelFile(
                Path(environment.hot_config),
                initial=Path(environment.model_url),
                directory=Path(environment.model_directory),
            )
            hot = HotModel(self._estimator, source, self, poll_s=environment.model_poll_s)
            self._model = hot
            hot.start()
        else:
            self._estimator.load(environment.model_url)
            self._model = FixedModel(self._estimator)
        return self._model

    def model_changed(self) -> None:
        """See Observer."""
        self._count(seen=0, hard=0)

    def _count(self, *, seen: int, hard: int) -> None:
        if self._reporter is None:
            return
        facts = self._model.facts if self._model is not None else {}
        self._reporter.change(
            lambda info: {"seen": info["seen"] + seen, "hard": info["hard"] + hard}, facts=facts
        )

    def close(self) -> None:
        """Send the last report of an inference worker."""
        if self._reporter is not None:
            self._reporter.close(LAST_REPORT_S)
        if self._model is not None:
            self._model.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Config(msgspec.Struct, frozen=True):
    model_update_time: str


class _File(msgspec.Struct, frozen=True):
    model_config: _Config
    model: str


class ModelFile(ModelSource):
    """The model that a file names, which changes with each deployment. The models are the job's.

    Args:
        initial: the model before the first deployment
        directory: has the models of all rounds
    """

    def __init__(self, file: Path, *, initial: Path, directory: Path) -> None:
        self._file, self._initial, self._directory = file, initial, directory

    def versions(self, loaded: str = "") -> list[ModelVersion]:
        """Raises: ContentError"""
        try:
            content = msgspec.json.decode(self._file.read_bytes(), type=_File)
            time = content.model_config.model_update_time
            number = int(time)
        except (OSError, ValueError, msgspec.DecodeError) as error:
            raise ContentError(f"{self._file} cannot be read: {error}") from error
        return [ModelVersion(number, time, 0, content.model)]

    def fetch(self, version: ModelVersion) -> Path:
        """Raises: ContentError"""
        path = self._directory / version.name if version.name else self._initial
        if not path.exists():
            raise ContentError(f"{path} does not exist")
        return path
