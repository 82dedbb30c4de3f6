"""A model that is replaced by its new version while the worker runs.

A thread asks the LocalController for new versions, and loads a new version into a copy of the
estimator beside the present one. The copy takes over between two calls of `predict`, so every
sample has an answer, from one version. When a version cannot be loaded, the present one goes on.
"""

import copy
import logging
import threading
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from edgeai import times
from edgeai.backoff import Backoff
from edgeai.errors import EdgeAIError, SettingsError
from edgeai.worker import estimator as estimators
from edgeai.worker.estimator import Estimator
from edgeai.worker.local_model import ContentError, ModelSource, ModelVersion
from edgeai.worker.tensors import Array

log = logging.getLogger(__name__)

MAX_FAULT_CHARS: Final = 200
CLOSE_S: Final = 1.0  # longest wait for a load in progress when the worker ends


class Answers(NamedTuple):
    answers: Any
    """One for each sample."""
    version: int | None
    """The version of the model that answered; None: the model has no versions."""
    change: int
    """Number of changes of the version before."""


class Observer(Protocol):
    def model_changed(self) -> None:
        """`facts` of the model have changed. On any thread, and before the model is loaded, too."""


class LoadFailed(EdgeAIError):
    """A version of the model cannot be loaded. `cause` is the error of the estimator."""

    def __init__(self, cause: BaseException) -> None:
        self.cause = cause
        super().__init__(f"{type(cause).__name__}: {cause}")


class FixedModel:
    """A model that stays as it is. Thread-safe, though the estimator need not be."""

    facts: Mapping[str, str] = MappingProxyType({})

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._in_use = threading.Lock()

    def predict(self, samples: Array) -> Answers:
        """Raises: EstimatorError; any error of the estimator"""
        with self._in_use:
            return Answers(estimators.predict(self._estimator, samples), None, 0)

    def close(self) -> None:
        """End with the worker."""


class HotModel:
    """A model with versions. Thread-safe after `start`.

    Args:
        estimator: without a model. Each version is loaded by a deep copy of it
        poll_s: from one question for a new version to the next
    Raises: SettingsError
    """

    def __init__(
        self, estimator: Estimator, source: ModelSource, observer: Observer, *, poll_s: float
    ) -> None:
        self._blank = _copy(estimator)
        self._source = source
        self._observer = observer
        self._poll_s = poll_s
        self._backoff = Backoff(base_s=min(1.0, poll_s), max_s=min(30.0, poll_s))
        self._in_use = threading.Lock()  # guards predict and the next three fields
        self._estimator: Estimator | None = None
        self._version: ModelVersion | None = None
        self._changes = 0
        self._fault = "waiting: the node is asked for it"
        self._loading = ""
        self._failed: set[ModelVersion] = set()
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="edgeai-model", daemon=True)

    def start(self) -> None:
        """Wait for the first version, and load it: the one before where the newest is broken.

        Raises: the error of the estimator's load() when no version can be loaded
        """
        try:
            self._load_first()
        except BaseException:
            self._source.close()
            raise
        self._thread.start()

    def predict(self, samples: Array) -> Answers:
        """Raises: EstimatorError; any error of the estimator"""
        with self._in_use:
            assert self._estimator is not None
            assert self._version is not None
            answers = estimators.predict(self._estimator, samples)
            return Answers(answers, self._version.generation, self._changes)

    @property
    def facts(self) -> dict[str, str]:
        """What reports say of the model. `modelLoading` names the version that is being loaded, and
        since when. `modelFault` says why there is none, or names a newer one that cannot be loaded.
        """
        version = self._version
        facts = {"modelFault": self._fault, "modelLoading": self._loading}
        if version is not None:
            facts |= {"modelVersion": str(version.generation), "modelDigest": version.digest}
        return {name: text for name, text in facts.items() if text}

    def close(self) -> None:
        """Ask for no more versions."""
        self._is_closed.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def _load_first(self) -> None:
        while self._version is None:
            problem = "the node has no content yet"
            try:
                self._load_one_of(self._source.versions())
            except ContentError as error:
                problem = str(error)
            if self._version is None:
                if self._fault != f"waiting: {problem}":
                    log.warning("waiting for the model: %s", problem)
                    self._note_fault(f"waiting: {problem}")
                time.sleep(self._backoff.next_s())

    def _load_one_of(self, versions: list[ModelVersion]) -> None:
        """Raises: ContentError; the error of the last version when none can be loaded"""
        for version in versions:
            is_last = version is versions[-1]
            if version in self._failed and not is_last:
                continue
            try:
                self._change_to(version, is_newest=version is versions[0], is_last=is_last)
                return
            except LoadFailed as error:
                if is_last:
                    raise error.cause from None

    def _run(self) -> None:
        wait_s = self._poll_s
        while not self._is_closed.wait(wait_s):
            try:
                self._update()
                self._backoff.reset()
                wait_s = self._poll_s
            except LoadFailed:
                wait_s = self._poll_s
            except ContentError as error:
                log.warning("no news of the model: %s", error)
                wait_s = self._backoff.next_s()
            except Exception:
                log.exception("the model is not updated, trying again")
                wait_s = self._poll_s
        self._source.close()

    def _update(self) -> None:
        """Load the newest version, if it is another one. Raises: ContentError, LoadFailed"""
        present = self._version.digest if self._version else ""
        versions = self._source.versions(loaded=present)
        newest = versions[0] if versions else self._version
        if newest is None or newest == self._version or newest in self._failed:
            return
        self._change_to(newest, is_newest=True, is_last=False)
        self._source.keep_only(newest.digest)

    def _change_to(self, version: ModelVersion, *, is_newest: bool, is_last: bool) -> None:
        """Raises: ContentError, LoadFailed"""
        estimator = self._estimator
        if self._version is None or version.digest != self._version.digest:
            estimator = self._load(version, is_last=is_last)
        with self._in_use:
            # The present one is freed after the lock: that may take its time.
            estimator, self._estimator = self._estimator, estimator
            self._version, self._changes = version, self._changes + 1
        del estimator
        self._fault = "" if is_newest else self._fault
        log.info("model version %s answers from now on", version.generation)
        self._observer.model_changed()

    def _load(self, version: ModelVersion, *, is_last: bool) -> Estimator:
        """Raises: ContentError, LoadFailed

        Args: is_last: try also what ended a process
        """
        file = self._source.fetch(version)
        estimator = _copy(self._blank)
        self._loading = f"version {version.generation} since {times.rfc3339(times.utc_now())}"
        self._observer.model_changed()
        try:
            if not self._source.load_begins(version) and not is_last:
                raise RuntimeError("the process ended while it was loaded")
            estimator.load(str(file))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if not file.exists():  # another process has a newer version, and deleted this one
                raise ContentError("its content has gone") from error
            log.error("version %s cannot be loaded", version.generation, exc_info=error)
            self._failed.add(version)
            failure = LoadFailed(error)
            self._note_fault(f"version {version.generation}: {failure}")
            raise failure from error
        finally:
            self._loading = ""
            self._source.load_ended()
        return estimator

    def _note_fault(self, text: str) -> None:
        self._fault, self._loading = text[:MAX_FAULT_CHARS], ""
        self._observer.model_changed()


def _copy(estimator: Estimator) -> Estimator:
    try:
        return copy.deepcopy(estimator)
    except Exception as error:
        raise SettingsError(
            type(estimator).__name__,
            f"cannot be copied ({type(error).__name__}: {error}), as hotUpdate needs; let load() "
            "make what cannot be copied",
        ) from error
