"""The cloud worker: serves a big model to the edge workers of its service.

    BigModelService(MyEstimator()).serve()

is a complete worker. POST /v1/predict takes and returns msgpack (see edgeai.worker.tensors). GET
/healthz answers 200 after the model is loaded. If the estimator raises an error, the service
answers 500 with a text, and the edge worker uses its own answer. The service stores samples only
where the spec of its JointInferenceService has hardExamples.
"""

import logging
import math
import os
import queue
import threading
from collections.abc import Sequence
from typing import Any, Final

from edgeai.worker import estimator as estimators
from edgeai.worker import tensors
from edgeai.worker.bounded_server import BoundedHandler, BoundedServer, RequestRefused, ServerLimits
from edgeai.worker.cloud_client import HEALTH_PATH, PREDICT_PATH, TIMEOUT_HEADER
from edgeai.worker.environment import Address, WorkerEnvironment, from_environ
from edgeai.worker.errors import TensorError
from edgeai.worker.estimator import Estimator
from edgeai.worker.hard_examples import HardExampleFile
from edgeai.worker.stop_signals import handling_stop_signals

log = logging.getLogger(__name__)

# Longest wait of a request for the estimator. A client can send its own timeout instead.
DEFAULT_WAIT_S: Final = 30.0


class BigModelService:
    """Serves an estimator over HTTP. The constructor begins to listen; serve() loads the model.

    Raises: SettingsError if it cannot listen, or cannot write the file of hard examples
    """

    def __init__(
        self,
        estimator: Estimator,
        *,
        environment: WorkerEnvironment | None = None,
        limits: ServerLimits | None = None,
    ) -> None:
        self._environment = environment or from_environ(os.environ)
        self._model = _Model(estimator)
        path, max_bytes = self._environment.hard_examples, self._environment.hard_examples_max_bytes
        hard_examples = HardExampleFile(path, max_bytes) if path else None
        self._server = _Server.listen(
            self._environment.big_model_bind,
            _Handler,
            limits or ServerLimits(),
            variables="BIG_MODEL_BIND_IP, BIG_MODEL_BIND_PORT",
        )
        self._server.model, self._server.hard_examples = self._model, hard_examples
        # A signal handler may call put(), but not Event.set(): the main thread may hold its lock.
        self._stop_requests: queue.SimpleQueue[str] = queue.SimpleQueue()

    @property
    def address(self) -> Address:
        return self._server.address

    def serve(self) -> None:
        """Load the model, then answer requests until SIGTERM, SIGINT or stop().

        serve() handles signals only in the main thread.
        Raises: the errors of the estimator's load()
        """
        with self._server.accepting(), handling_stop_signals(self._on_signal):
            self._model.load(self._environment.model_url)
            log.info("big model is served: address=%s:%d", *self.address)
            log.info("stopping: reason=%s", self._stop_requests.get())

    def stop(self) -> None:
        """Make serve() return. Callable from any thread."""
        self._stop_requests.put("stop() was called")

    def _on_signal(self, name: str) -> None:
        if not self._model.is_loaded:
            raise SystemExit(0)  # loading may take minutes, and no client waits for an answer yet
        self._stop_requests.put(name)


class _Model:
    """Lets one thread at a time use the estimator."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._in_use = threading.Lock()
        self.is_loaded = False

    def load(self, model_url: str) -> None:
        self._estimator.load(model_url)
        self.is_loaded = True

    def predict(
        self, samples: tensors.Array, wait_s: float
    ) -> tuple[Sequence[Any] | tensors.Array, bytes]:
        """The answers, and the body of the reply. Raises: RequestRefused"""
        # A request waits only as long as its client does: the next request needs the estimator.
        if not self._in_use.acquire(timeout=wait_s):
            raise RequestRefused(503, "the estimator was busy until the caller's deadline")
        try:
            answers = estimators.predict(self._estimator, samples)
            return answers, tensors.encode_reply(answers)
        except Exception as error:
            log.exception("the estimator failed")
            raise RequestRefused(500, describe(error)) from error
        finally:
            self._in_use.release()


class _Server(BoundedServer):
    model: _Model
    hard_examples: HardExampleFile | None


class _Handler(BoundedHandler):
    server: _Server

    def do_GET(self) -> None:  # noqa: N802 - http.server's name
        self._answer(self._health)

    def do_POST(self) -> None:  # noqa: N802 - http.server's name
        self._answer(self._predict)

    def _answer(self, route: Any) -> None:
        try:
            route()
        except RequestRefused as refusal:
            self.refuse(refusal)

    def _health(self) -> None:
        if self.path != HEALTH_PATH:
            raise RequestRefused(404, f"no such path; GET {HEALTH_PATH}, POST {PREDICT_PATH}")
        self._require_model()
        self.reply(200, b'{"status":"ok"}', "application/json")

    def _predict(self) -> None:
        body = self.read_request_body()
        if self.path != PREDICT_PATH:
            raise RequestRefused(404, f"no such path; POST {PREDICT_PATH}")
        self._require_model()
        try:
            samples = tensors.decode_request(body)
        except TensorError as error:
            raise RequestRefused(400, str(error)) from error
        answers, body = self.server.model.predict(samples, self._wait_s())
        self.reply(200, body, "application/msgpack")
        # After the reply, so that no edge waits for the disk.
        if self.server.hard_examples:
            self.server.hard_examples.append(samples, answers)

    def _require_model(self) -> None:
        if not self.server.model.is_loaded:
            raise RequestRefused(503, "the model is being loaded")

    def _wait_s(self) -> float:
        try:
            wait_s = float(self.headers.get(TIMEOUT_HEADER, "")) / 1000
        except ValueError:
            return DEFAULT_WAIT_S
        return min(wait_s, DEFAULT_WAIT_S) if math.isfinite(wait_s) and wait_s > 0 else 0.0


def describe(error: Exception) -> str:
    return f"the estimator raised {type(error).__name__}: {error}"[:500]
