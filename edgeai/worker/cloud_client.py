"""Asks the big model for the answers to hard samples.

JointInference calls CloudClient. A fault of the cloud or of the network raises no error: each
sample gets a CloudAnswer, which has an answer or the reason why there is no answer. `timeout_s`
limits one whole ask(): name resolution and all requests, up to the last byte.
"""

import logging
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from edgeai.worker import tensors
from edgeai.worker.circuit_breaker import CircuitBreaker, Ticket
from edgeai.worker.deadline import Deadline
from edgeai.worker.environment import Address
from edgeai.worker.errors import TensorError
from edgeai.worker.http_exchange import ExchangeError, Failure, HTTPPeer, Request, Response
from edgeai.worker.results import Reason
from edgeai.worker.tensors import Array
from edgeai.worker.transport import DIRECT, Route

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024
PREDICT_PATH: Final = "/v1/predict"
HEALTH_PATH: Final = "/healthz"
TIMEOUT_HEADER: Final = "Edgeai-Timeout-Ms"  # the time left until the caller's deadline
MESSAGE_BYTES: Final = 256  # limit for the bytes of a request without the data of its samples
HEALTH_POLL_S: Final = 0.2

REASONS: Final = {
    Failure.TIMEOUT: Reason.CLOUD_TIMEOUT,
    Failure.UNREACHABLE: Reason.CLOUD_UNREACHABLE,
    Failure.MALFORMED: Reason.CLOUD_ERROR,
}


class CloudAnswer(msgspec.Struct, frozen=True):
    """The cloud's answer for one sample, or the reason why there is none.

    `reason` is HARD if `answer` is from the cloud. Any other reason says why there is no answer.
    """

    reason: Reason
    is_sent: bool
    answer: Any = None


class CloudClient:
    """The big model at one address. Thread-safe.

    Args:
        timeout_s: limit of one ask()
        max_request_bytes: limit of one request; a larger batch takes several requests
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float = 2.0,
        max_request_bytes: int = MAX_REQUEST_BYTES,
        breaker: CircuitBreaker | None = None,
        route: Route = DIRECT,
    ) -> None:
        self.transport = route.transport
        self._peer = HTTPPeer(address, max_response_bytes=MAX_REQUEST_BYTES, route=route)
        self._timeout_s = timeout_s
        self._max_data_bytes = max_request_bytes - MESSAGE_BYTES
        self._breaker = breaker or CircuitBreaker()
        self._lock = threading.Lock()
        self._logged_reason = Reason.HARD  # the last logged reason; HARD: the cloud answers

    def ask(self, samples: Array) -> list[CloudAnswer]:
        """Ask for answers. Returns: one CloudAnswer for each row of `samples`, in the same order.

        Raises: TensorError for a dtype that cannot be sent
        """
        tensors.require_supported(samples.dtype)
        if len(samples) and samples[0].nbytes > self._max_data_bytes:
            return [CloudAnswer(Reason.SAMPLE_TOO_LARGE, is_sent=False)] * len(samples)
        deadline = Deadline(self._timeout_s)
        answers: list[CloudAnswer] = []
        for part in split(samples, self._max_data_bytes):
            answers += self._ask_part(part, deadline)
        return answers

    def wait_until_healthy(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s`. Returns: whether the cloud says that its model is loaded."""
        deadline = Deadline(timeout_s)
        while deadline.left_s():
            if self._is_healthy(Deadline(min(self._timeout_s, deadline.left_s()))):
                return True
            time.sleep(min(HEALTH_POLL_S, deadline.left_s()))
        return False

    def close(self) -> None:
        self._peer.close()

    def _is_healthy(self, deadline: Deadline) -> bool:
        try:
            response = self._peer.exchange(Request(method="GET", path=HEALTH_PATH), deadline)
        except ExchangeError:
            return False
        return response.status == 200

    def _ask_part(self, samples: Array, deadline: Deadline) -> list[CloudAnswer]:
        ticket = self._breaker.admit()
        if ticket is None:
            return [CloudAnswer(Reason.CLOUD_BACKING_OFF, is_sent=False)] * len(samples)
        started_s = time.monotonic()
        try:
            response = self._peer.exchange(predict_request(samples, deadline), deadline)
        except ExchangeError as error:
            self._breaker.failed(ticket, cost_s=time.monotonic() - started_s)
            self._log_change(REASONS[error.failure], error.detail)
            return [CloudAnswer(REASONS[error.failure], error.is_sent)] * len(samples)
        except BaseException:  # an interrupt: the ticket must be returned, too
            self._breaker.failed(ticket, cost_s=0.0)
            raise
        self._update_breaker(ticket, response, time.monotonic() - started_s)
        return self._read(response, len(samples))

    def _update_breaker(self, ticket: Ticket, response: Response, cost_s: float) -> None:
        """Count 503 as a failure. Any other answer, also an error, shows that the cloud answers."""
        if response.status == 503:
            self._breaker.failed(ticket, cost_s=cost_s, retry_after_s=response.retry_after_s)
        else:
            self._breaker.succeeded(ticket)

    def _read(self, response: Response, expected: int) -> list[CloudAnswer]:
        answers, problem = read_answers(response, expected)
        if problem:
            self._log_change(Reason.CLOUD_ERROR, problem)
            return [CloudAnswer(Reason.CLOUD_ERROR, is_sent=True)] * expected
        self._log_change(Reason.HARD, "")
        return [CloudAnswer(Reason.HARD, is_sent=True, answer=answer) for answer in answers]

    def _log_change(self, reason: Reason, detail: str) -> None:
        """Log only changes, because a long outage gives many samples the same reason."""
        with self._lock:
            is_news, self._logged_reason = reason is not self._logged_reason, reason
        if is_news and reason is Reason.HARD:
            log.info("the cloud answers again")
        elif is_news:
            log.warning("no answer from the cloud, using the edge's: %s (%s)", reason, detail)


def predict_request(samples: Array, deadline: Deadline) -> Request:
    return Request(
        method="POST",
        path=PREDICT_PATH,
        body=tensors.encode_request(samples),
        headers={
            "Content-Type": "application/msgpack",
            TIMEOUT_HEADER: str(int(deadline.left_s() * 1000)),
        },
    )


def read_answers(response: Response, expected: int) -> tuple[list[Any], str]:
    """Returns: the answers and ""; or no answers, and what is wrong with the response."""
    if response.status != 200:
        return [], f"HTTP {response.status}: {response.body[:500].decode(errors='replace')}"
    try:
        return tensors.decode_reply(response.body, samples=expected), ""
    except TensorError as error:
        return [], str(error)


def split(samples: Array, max_bytes: int) -> Iterator[Array]:
    """Split `samples` into parts of at most `max_bytes`. A part has at least one row."""
    rows = max(1, max_bytes // max(1, samples[:1].nbytes))
    for start in range(0, len(samples), rows):
        yield samples[start : start + rows]
