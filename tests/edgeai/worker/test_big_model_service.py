"""The cloud worker as its clients meet it: over sockets, in order and out of order."""

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeai.errors import SettingsError
from edgeai.worker import tensors
from edgeai.worker.big_model_service import BigModelService
from edgeai.worker.bounded_server import ServerLimits
from edgeai.worker.cloud_client import TIMEOUT_HEADER, CloudClient
from edgeai.worker.environment import Address, WorkerEnvironment
from edgeai.worker.hard_examples import hard_examples
from edgeai.worker.results import Reason
from tests.edgeai.worker import peers
from tests.edgeai.worker.peers import LOOPBACK, Doubler
from tests.support.waiting import PATIENCE_S, eventually

CHECKOUT = Path(__file__).parents[3]
ENVIRONMENT = WorkerEnvironment(big_model_bind=Address(LOOPBACK, 0), model_url="/models/big")
BODY = tensors.encode_request(peers.samples(2))


class Model(Doubler):
    """Doubles; waits while `gate` is closed; raises for negative numbers."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.loading = threading.Event()
        self.loading.set()
        self.entered = threading.Semaphore(0)
        self.calls = 0

    def load(self, model_url: str) -> None:
        self.model_url = model_url
        self.loading.wait(PATIENCE_S)

    def predict(self, batch: tensors.Array) -> tensors.Array:
        self.calls += 1
        self.entered.release()
        assert self.gate.wait(PATIENCE_S)
        if (batch < 0).any():
            raise ValueError("bad pixel")
        return batch[:-1] if (batch > 100).any() else batch * 2


@contextmanager
def serving(
    model: Model, environment: WorkerEnvironment = ENVIRONMENT, **limits: Any
) -> Iterator[BigModelService]:
    service = BigModelService(model, environment=environment, limits=ServerLimits(**limits))
    thread = threading.Thread(target=service.serve)
    thread.start()
    try:
        yield service
    finally:
        model.loading.set()
        model.gate.set()
        service.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_hard_examples_are_kept_with_their_answers(tmp_path: Path) -> None:
    path = tmp_path / "hard.jsonl"
    environment = WorkerEnvironment(big_model_bind=Address(LOOPBACK, 0), hard_examples=path)
    with serving(Model(), environment) as service:
        client = CloudClient(service.address, timeout_s=PATIENCE_S)
        assert client.wait_until_healthy(PATIENCE_S)
        client.ask(peers.samples(2))
        client.ask(-peers.samples(1))  # the estimator fails
        client.close()
        eventually("lines", lambda: path.read_text().count("\n") == 2)
    first, second = hard_examples(path)
    assert np.array_equal(first.sample, peers.samples(2)[0])
    assert second.answer == (peers.samples(2)[1] * 2).tolist()


def test_a_file_that_cannot_be_written_is_an_error_before_the_port_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "hard.jsonl"
    with pytest.raises(SettingsError, match="HARD_EXAMPLES_PATH"):
        BigModelService(Model(), environment=WorkerEnvironment(hard_examples=path))


@contextmanager
def connected(service: BigModelService) -> Iterator[socket.socket]:
    with socket.create_connection(service.address, timeout=PATIENCE_S) as connection:
        yield connection


def ask(
    service: BigModelService,
    method: str,
    path: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(*service.address, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request(method, path, body=body, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.read()


def predict(service: BigModelService, samples: tensors.Array) -> tuple[int, bytes]:
    return ask(service, "POST", "/v1/predict", tensors.encode_request(samples))


def wait_until_ready(service: BigModelService) -> None:
    eventually("a model that is loaded", lambda: ask(service, "GET", "/healthz")[0] == 200)


def read_until_closed(connection: socket.socket) -> bytes:
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(65536):
            data += chunk
    return data


def test_predict_answers_every_sample() -> None:
    model = Model()
    with serving(model) as service:
        wait_until_ready(service)
        status, body = predict(service, np.array([[1.0], [2.0]]))
    assert status == 200
    assert [row.tolist() for row in tensors.decode_reply(body, samples=2)] == [[2.0], [4.0]]
    assert model.model_url == "/models/big"


def test_health_is_503_until_the_model_is_loaded() -> None:
    model = Model()
    model.loading.clear()
    with serving(model) as service:
        assert ask(service, "GET", "/healthz")[0] == 503
        assert predict(service, peers.samples(1))[0] == 503
        model.loading.set()
        wait_until_ready(service)


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        pytest.param(-peers.samples(2), "ValueError: bad pixel", id="estimator raises"),
        pytest.param(peers.samples(2, 101), "1 answers for 2 samples", id="too few answers"),
    ],
)
def test_fault_of_the_estimator_is_a_500_that_says_so(samples: tensors.Array, says: str) -> None:
    with serving(Model()) as service:
        wait_until_ready(service)
        status, body = predict(service, samples)
        assert status == 500
        assert says in json.loads(body)["error"]
        assert predict(service, peers.samples(1))[0] == 200, "the next request is served"


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        pytest.param("GET", "/", b"", {}, 404, id="unknown path"),
        pytest.param("POST", "/sedna/predict", BODY, {}, 404, id="unknown path to post to"),
        pytest.param("PUT", "/v1/predict", BODY, {}, 501, id="method"),
        pytest.param("POST", "/v1/predict", b"\xc1", {}, 400, id="garbage"),
        pytest.param("POST", "/v1/predict", b"", {}, 400, id="empty body"),
        pytest.param("POST", "/v1/predict", b"x" * 2000, {}, 413, id="too large"),
        pytest.param(
            "POST", "/v1/predict", b"0\r\n\r\n", {"Transfer-Encoding": "chunked"}, 411, id="chunked"
        ),
        pytest.param("POST", "/v1/predict", b"", {"Content-Length": "-5"}, 400, id="length"),
    ],
)
def test_request_that_is_refused(
    method: str, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    with serving(Model(), max_request_bytes=1000) as service:
        wait_until_ready(service)
        assert ask(service, method, path, body, headers)[0] == status
        assert predict(service, peers.samples(1))[0] == 200


def test_body_far_beyond_the_limit_is_refused_before_it_is_read() -> None:
    with serving(Model(), max_request_bytes=1000) as service, connected(service) as connection:
        connection.sendall(b"POST /v1/predict HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 413")


def test_expect_continue_is_answered_at_once() -> None:
    with serving(Model()) as service, connected(service) as connection:
        wait_until_ready(service)
        head = f"POST /v1/predict HTTP/1.1\r\nContent-Length: {len(BODY)}\r\n"
        connection.sendall(head.encode() + b"Expect: 100-continue\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 100")
        connection.sendall(BODY)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "drip",
    [
        pytest.param(b"P", id="request line"),
        pytest.param(b"POST /v1/predict HTTP/1.1\r\nX: ", id="head"),
        pytest.param(b"POST /v1/predict HTTP/1.1\r\nContent-Length: 900\r\n\r\n", id="body"),
    ],
)
def test_slow_sender_is_cut_off(drip: bytes) -> None:
    with serving(Model(), read_timeout_s=0.2) as service, connected(service) as connection:
        started_s = time.monotonic()
        connection.sendall(drip)
        connection.settimeout(0.02)
        with contextlib.suppress(OSError):
            while time.monotonic() - started_s < PATIENCE_S:
                connection.sendall(b"a")
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(65536):
                        break
        assert time.monotonic() - started_s < PATIENCE_S / 2


def test_idle_connection_is_closed() -> None:
    with serving(Model(), idle_timeout_s=0.1) as service, connected(service) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert read_until_closed(connection).startswith(b"HTTP/1.1 ")


@contextlib.contextmanager
def predicting(service: BigModelService, model: Model) -> Iterator[socket.socket]:
    """A connection whose request the model has. The service turns a connection away as long as it
    has not noticed the end of the connection before.
    """
    while True:
        with connected(service) as connection:
            connection.sendall(PREDICT)
            while not (is_served := model.entered.acquire(timeout=0.05)):
                if select.select([connection], [], [], 0)[0]:
                    break
            if is_served:
                yield connection
                return


def test_connections_beyond_the_limit_are_turned_away_until_one_is_answered() -> None:
    model = Model()
    with serving(model, max_connections=1) as service:
        wait_until_ready(service)
        model.gate.clear()
        with predicting(service, model) as first:
            with connected(service) as second:
                assert read_until_closed(second).startswith(b"HTTP/1.1 503")
            model.gate.set()
            assert first.recv(65536).startswith(b"HTTP/1.1 200")
            wait_until_ready(service)


PREDICT = f"POST /v1/predict HTTP/1.1\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY
HOLDERS = {
    "idle, of the same address": (LOOPBACK, b""),
    "idle, of another address": ("127.0.0.2", b""),
    "slow, of another address": ("127.0.0.2", PREDICT[:-1]),
}


@pytest.mark.parametrize("case", HOLDERS)
def test_connections_that_do_not_ask_keep_nobody_out(case: str) -> None:
    address, sent = HOLDERS[case]
    with serving(Model(), read_timeout_s=PATIENCE_S) as service, contextlib.ExitStack() as held:
        wait_until_ready(service)
        for _ in range(ServerLimits().max_connections):
            connection = socket.create_connection(service.address, source_address=(address, 0))
            held.enter_context(connection).sendall(sent)
        client = CloudClient(service.address, timeout_s=PATIENCE_S)
        for _ in range(3):
            assert [answer.reason for answer in client.ask(peers.samples(1))] == [Reason.HARD]
        client.close()


def test_the_first_request_must_come_within_the_time_of_reading() -> None:
    with serving(Model(), read_timeout_s=0.1) as service, connected(service) as connection:
        assert read_until_closed(connection) == b""


def test_garbage_and_resets_leave_the_service_alive() -> None:
    with serving(Model()) as service:
        wait_until_ready(service)
        for noise in (b"\x16\x03\x01\x02\x00\x01", b"GET", b"\r\n\r\n", b"POST / HTTP/9.9\r\n\r\n"):
            with connected(service) as connection:
                connection.sendall(noise)
        assert predict(service, peers.samples(1))[0] == 200


def test_request_whose_sender_gave_up_does_not_reach_the_estimator() -> None:
    model = Model()
    with serving(model) as service:
        wait_until_ready(service)
        model.gate.clear()
        first = threading.Thread(target=predict, args=(service, peers.samples(1)))
        first.start()
        model.entered.acquire()
        status, _ = ask(service, "POST", "/v1/predict", BODY, {TIMEOUT_HEADER: "50"})
        model.gate.set()
        first.join(PATIENCE_S)
    assert status == 503
    assert model.calls == 1


def test_client_and_service_understand_each_other() -> None:
    with serving(Model()) as service:
        client = CloudClient(service.address, timeout_s=PATIENCE_S)
        assert client.wait_until_healthy(PATIENCE_S)
        assert [answer.answer.item() for answer in client.ask(peers.samples(3))] == [1.0] * 3
        assert client.ask(-peers.samples(1))[0].reason is Reason.CLOUD_ERROR
        client.close()


def test_stop_finishes_what_runs_and_closes_what_idles() -> None:
    model = Model()
    found: list[tuple[int, bytes]] = []
    with serving(model) as service, connected(service) as idle:
        wait_until_ready(service)
        model.gate.clear()
        running = threading.Thread(target=lambda: found.append(predict(service, peers.samples(1))))
        running.start()
        model.entered.acquire()
        service.stop()
        assert read_until_closed(idle) == b""
        with pytest.raises(ConnectionRefusedError), connected(service):
            pass
        model.gate.set()
        running.join(PATIENCE_S)
    assert found[0][0] == 200


def test_stop_does_not_wait_beyond_its_grace() -> None:
    model = Model()
    with serving(model, grace_s=0.1) as service:
        wait_until_ready(service)
        model.gate.clear()
        with connected(service) as connection:
            head = f"POST /v1/predict HTTP/1.1\r\nContent-Length: {len(BODY)}\r\n\r\n"
            connection.sendall(head.encode() + BODY)
            model.entered.acquire()
            started_s = time.monotonic()
            service.stop()
            eventually(
                "the end of serve()",
                lambda: not any(t.name == "edgeai-http" for t in threading.enumerate()),
            )
            assert time.monotonic() - started_s < PATIENCE_S / 2


def test_address_in_use_is_an_error_that_names_the_variables() -> None:
    with peers.silent_listener() as address:
        environment = WorkerEnvironment(big_model_bind=address)
        with pytest.raises(SettingsError, match=r"BIG_MODEL_BIND_IP, BIG_MODEL_BIND_PORT.*in use"):
            BigModelService(Model(), environment=environment)


SCRIPT = """
import time
from edgeai.worker import BigModelService

class Slow:
    def load(self, model_url):
        print("loading", flush=True)
        time.sleep(float(model_url))
    def predict(self, batch):
        print("predicting", flush=True)
        time.sleep(0.3)
        return batch

service = BigModelService(Slow())
print(service.address.port, flush=True)
service.serve()
print("served", flush=True)
"""


@contextmanager
def process(
    load_s: str, bind_ip: str = LOOPBACK
) -> Iterator[tuple[subprocess.Popen[str], Address]]:
    """The script with the variables that the GlobalManager gives to a cloud worker."""
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(CHECKOUT),
        "MODEL_URL": load_s,
        "BIG_MODEL_BIND_IP": bind_ip,
        "BIG_MODEL_BIND_PORT": "0",
    }
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        try:
            port = int(worker.stdout.readline())
            assert worker.stdout.readline() == "loading\n"
            yield worker, Address(bind_ip, port)
        finally:
            worker.kill()


def test_worker_listens_on_the_pods_address_alone() -> None:
    with process(load_s="60", bind_ip="127.9.8.7") as (_, address):
        with socket.create_connection(address, timeout=PATIENCE_S) as connection:
            assert connection.getpeername() == address
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, address.port), timeout=PATIENCE_S)


def test_sigterm_finishes_the_request_under_way_and_exits_0() -> None:
    with process(load_s="0") as (worker, address), contextlib.ExitStack() as stack:
        client = CloudClient(address, timeout_s=PATIENCE_S)
        stack.callback(client.close)
        assert client.wait_until_healthy(PATIENCE_S)
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.extend(client.ask(peers.samples(1))))
        asking.start()
        assert worker.stdout is not None
        assert worker.stdout.readline() == "predicting\n"
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
        asking.join(PATIENCE_S)
        assert worker.stdout.read() == "served\n"
    assert [answer.reason for answer in answers] == [Reason.HARD]


def test_sigterm_while_loading_exits_0_at_once() -> None:
    with process(load_s="60") as (worker, _):
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 0
