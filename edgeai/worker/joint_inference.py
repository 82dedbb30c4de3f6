"""The edge worker: answers every sample, and asks the cloud for the hard ones.

    with JointInference(MyEstimator()) as joint:
        for result in joint.inference(batch):
            use(result.answer)

inference() answers even without the cloud: if the cloud sends no answer in time, inference() uses
the edge's answer. A Reporter sends the counts to the LocalController; nobody waits for it.
"""

import logging
import os
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec

from edgeai.errors import SettingsError
from edgeai.worker import hard_example_mining, tensors
from edgeai.worker.cloud_client import CloudAnswer, CloudClient
from edgeai.worker.environment import WorkerEnvironment, from_environ
from edgeai.worker.errors import MiningError
from edgeai.worker.estimator import Estimator
from edgeai.worker.hard_example_mining import Decision, EdgeOnly, HardExampleMining
from edgeai.worker.hot_model import Answers, FixedModel, HotModel, Observer
from edgeai.worker.local_model import LocalModel
from edgeai.worker.reporter import reporter_from
from edgeai.worker.results import COUNT_NAMES, AnsweredBy, Counts, InferenceResult, Reason, count
from edgeai.worker.tensors import Array
from edgeai.worker.transport import choose

log = logging.getLogger(__name__)

EASY: Final = CloudAnswer(Reason.EASY, is_sent=False)
REPORT_S: Final = 2.0  # for the last report


class VersionCounts(NamedTuple):
    """Counts of one version of the model. `change` as in Answers."""

    change: int
    version: int | None
    counts: Counts


class JointInference:
    """A small model on the edge that can ask a big model in the cloud. Thread-safe.

    Args:
        hard_example_mining: selects the samples to send to the cloud. None: the algorithm of
            HEM_NAME and HEM_PARAMETERS; without HEM_NAME no sample is sent
        environment: None: this process's environment variables
        cloud: None: a client of BIG_MODEL_IP with the default limits; close() closes the client
        is_reporting: False for measurements, whose samples must not be counted
        loads_model: False if the estimator has loaded its model already
    Raises: SettingsError; the errors of the estimator's load()
    """

    def __init__(
        self,
        estimator: Estimator,
        hard_example_mining: HardExampleMining | None = None,
        *,
        environment: WorkerEnvironment | None = None,
        cloud: CloudClient | None = None,
        is_reporting: bool = True,
        loads_model: bool = True,
    ) -> None:
        environment = environment or from_environ(os.environ)
        self._mining = hard_example_mining or mining_from(environment)
        self._cloud = cloud or cloud_from(environment, self._mining)
        self._count_lock = threading.Lock()
        self._counts = Counts()
        self._version_counts = VersionCounts(0, None, Counts())
        hot = hot_model_from(environment, estimator, self) if loads_model else None
        if loads_model and hot is None:
            estimator.load(environment.model_url)
        self._model = hot or FixedModel(estimator)
        self._facts = {} if self._cloud is None else {"transport": str(self._cloud.transport)}
        self._reporter = (
            reporter_from(
                environment,
                phase="inference",
                info=Counts(),
                counts=COUNT_NAMES,
                facts={**self._facts, **self._model.facts},
            )
            if is_reporting
            else None
        )
        if hot is not None:
            self._start(hot)

    def inference(self, batch: Any) -> list[InferenceResult]:
        """One result for each row of `batch`, an array of numbers; [] for an empty batch.

        The counts do not include a batch that raises an error.
        Raises: TensorError, EstimatorError, MiningError; the errors of the estimator
        """
        samples = tensors.as_samples(batch)
        if not len(samples):
            return []
        predicted = self._model.predict(samples)
        edge_answers = predicted.answers
        decisions = [self._mining(answer) for answer in edge_answers]
        cloud_answers = self._ask_cloud(samples, decisions)
        results = [
            merge(decision, edge_answer, cloud_answer, predicted.version)
            for decision, edge_answer, cloud_answer in zip(
                decisions, edge_answers, cloud_answers, strict=True
            )
        ]
        self._count(count(results), predicted)
        return results

    @property
    def counts(self) -> Counts:
        """Totals since this object was created."""
        with self._count_lock:
            return self._counts

    def wait_for_cloud(self, timeout_s: float) -> bool:
        """Optional: wait at most `timeout_s`. Returns: whether the big model is ready"""
        return self._cloud is not None and self._cloud.wait_until_healthy(timeout_s)

    def flush(self, timeout_s: float) -> bool:
        """Report now. Returns: whether the LocalController acknowledged the present counts."""
        return self._reporter is not None and self._reporter.flush(timeout_s)

    def close(self, timeout_s: float = REPORT_S) -> bool:
        """Send the last report within `timeout_s`. Returns: whether it was acknowledged."""
        is_acknowledged = self._reporter is not None and self._reporter.close(timeout_s)
        self._model.close()
        if self._cloud is not None:
            self._cloud.close()
        return is_acknowledged

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask_cloud(self, samples: Array, decisions: Sequence[Decision]) -> list[CloudAnswer]:
        """One answer for each sample. EASY: the cloud was not asked."""
        answers = [EASY] * len(decisions)
        hard = [index for index, decision in enumerate(decisions) if decision.is_hard]
        if self._cloud is not None and hard:
            for index, answer in zip(hard, self._cloud.ask(samples[hard]), strict=True):
                answers[index] = answer
        return answers

    def _start(self, model: HotModel) -> None:
        """Reports say meanwhile why the worker has no model."""
        try:
            model.start()
        except BaseException:
            if self._reporter is not None:
                self._reporter.close(REPORT_S)
            raise

    def _count(self, counts: Counts, answers: Answers) -> None:
        with self._count_lock:
            self._counts += counts
            before = self._version_counts
            if answers.change == before.change:
                self._version_counts = before._replace(counts=before.counts + counts)
            # A batch that ends after the change of the version counts in the totals alone.
            elif answers.change > before.change:
                self._version_counts = VersionCounts(answers.change, answers.version, counts)
            self._report(counts)

    def model_changed(self) -> None:
        """See Observer. The worker may get no samples for long."""
        with self._count_lock:
            self._report(Counts())

    def _report(self, counts: Counts) -> None:
        if self._reporter is not None:
            facts = {**self._facts, **self._model.facts, **self._counts_of_version()}
            self._reporter.change(lambda reported: reported + counts, facts=facts)

    def _counts_of_version(self) -> dict[str, int]:
        """The counts of the last version that has answered, since this process loaded it."""
        _, version, counts = self._version_counts
        if version is None:
            return {}
        numbers = msgspec.to_builtins(counts)
        return {"version": version} | {f"{name}OfVersion": n for name, n in numbers.items()}


def merge(
    decision: Decision, edge_answer: Any, cloud: CloudAnswer, version: int | None = None
) -> InferenceResult:
    is_clouds = cloud.reason is Reason.HARD
    return InferenceResult(
        answer=cloud.answer if is_clouds else edge_answer,
        answered_by=AnsweredBy.CLOUD if is_clouds else AnsweredBy.EDGE,
        reason=cloud.reason,
        is_hard=decision.is_hard,
        uploaded=cloud.is_sent,
        score=decision.score,
        edge_answer=edge_answer,
        model_version=version,
    )


def hot_model_from(
    environment: WorkerEnvironment, estimator: Estimator, observer: Observer
) -> HotModel | None:
    """The model, not loaded; None: it is not loaded hot."""
    if not environment.hot_model or environment.lc_server is None:
        return None
    directory = Path(environment.model_dir or tempfile.mkdtemp(prefix="edgeai-model-"))
    source = LocalModel(
        environment.lc_server, environment.worker_name, environment.hot_model, directory
    )
    return HotModel(estimator, source, observer, poll_s=environment.model_poll_s)


def mining_from(environment: WorkerEnvironment) -> HardExampleMining:
    if not environment.hem_name:
        log.warning("HEM_NAME is not set: no sample is hard, the cloud is never asked")
        return EdgeOnly()
    try:
        return hard_example_mining.create(environment.hem_name, environment.hem_parameters)
    except MiningError as error:
        raise SettingsError("environment variables HEM_NAME, HEM_PARAMETERS", str(error)) from error


def cloud_from(environment: WorkerEnvironment, mining: HardExampleMining) -> CloudClient | None:
    """The client for the big model; None: no sample is ever hard."""
    if isinstance(mining, EdgeOnly):
        return None
    if environment.big_model is None:
        raise SettingsError(
            "environment variable BIG_MODEL_IP",
            "is not set; the GlobalManager sets it in edge workers, elsewhere set it to the host "
            "of the cloud worker, or mine with EdgeOnly",
        )
    return CloudClient(
        environment.big_model,
        timeout_s=environment.cloud_timeout_s,
        route=choose(environment.big_model, environment),
    )
