"""Joint inference as the user's script sees it, against good, bad and absent clouds."""

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from edgeai.backoff import Backoff
from edgeai.errors import SettingsError
from edgeai.worker import tensors
from edgeai.worker.circuit_breaker import CircuitBreaker
from edgeai.worker.cloud_client import CloudClient
from edgeai.worker.environment import Address, LCServer, WorkerEnvironment
from edgeai.worker.errors import EstimatorError, MiningError, TensorError
from edgeai.worker.hard_example_mining import CloudOnly, EdgeOnly, HardExampleMining, Threshold
from edgeai.worker.joint_inference import JointInference
from edgeai.worker.results import AnsweredBy, Counts, Reason
from tests.edgeai.worker import peers
from tests.edgeai.worker.peers import LOOPBACK, Doubler, LocalController, ScriptedCloud
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, eventually

HARD, EASY = 0.1, 0.9  # sample values; the edge's answer is the sample itself

MakeJoint = Callable[..., JointInference]


@pytest.fixture
def joint() -> Iterator[MakeJoint]:
    with contextlib.ExitStack() as stack:

        def make(
            address: Address | None,
            mining: HardExampleMining | None = None,
            cloud: CloudClient | None = None,
            **variables: Any,
        ) -> JointInference:
            known = {"hem_name": "Threshold", "model_url": "/models/small"} | variables
            environment = WorkerEnvironment(big_model=address, **known)
            made = JointInference(Doubler(), mining, environment=environment, cloud=cloud)
            stack.callback(made.close, 0.0)
            return made

        yield make


def mixed(count: int, seed: int = 0) -> tensors.Array:
    values = np.random.default_rng(seed).choice([HARD, EASY], size=count)
    return values.astype(np.float32).reshape(count, 1)


def test_hard_samples_are_answered_by_the_cloud_and_easy_ones_by_the_edge(
    joint: MakeJoint,
) -> None:
    with ScriptedCloud(peers.answer) as cloud:
        easy, hard = joint(cloud.address).inference(np.array([[EASY], [HARD]]))
    assert (easy.answered_by, easy.reason, easy.is_hard) == (AnsweredBy.EDGE, Reason.EASY, False)
    assert (hard.answered_by, hard.reason, hard.is_hard) == (AnsweredBy.CLOUD, Reason.HARD, True)
    assert hard.answer == pytest.approx(2 * HARD)
    assert hard.edge_answer == pytest.approx(HARD)
    assert hard.score == pytest.approx(HARD)


def test_hard_samples_of_a_batch_go_in_one_request(joint: MakeJoint) -> None:
    with ScriptedCloud(peers.answer) as cloud:
        joint(cloud.address).inference(mixed(100))
        assert [len(request) for request in cloud.requests] == [int((mixed(100) == HARD).sum())]


def test_easy_batch_makes_no_request(joint: MakeJoint) -> None:
    with ScriptedCloud(peers.answer) as cloud:
        joint(cloud.address).inference(peers.samples(5, EASY))
        assert cloud.connections == 0


def test_without_an_algorithm_no_sample_is_uploaded_and_the_log_says_why(
    joint: MakeJoint, caplog: pytest.LogCaptureFixture
) -> None:
    with ScriptedCloud(peers.answer) as cloud:
        joining = joint(cloud.address, hem_name="")
        assert [each.uploaded for each in joining.inference(mixed(20))] == [False] * 20
        assert cloud.connections == 0
    assert "HEM_NAME is not set: no sample is hard" in caplog.text


@pytest.mark.parametrize("batch", [[], np.empty((0, 8, 8), dtype=np.float32)])
def test_empty_batch_is_no_result_and_not_counted(joint: MakeJoint, batch: Any) -> None:
    joining = joint(Address(LOOPBACK, free_port()))
    assert joining.inference(batch) == []
    assert joining.counts == Counts()


def test_model_url_reaches_the_estimator() -> None:
    model = Doubler()
    JointInference(model, EdgeOnly(), environment=WorkerEnvironment(model_url="/models/small"))
    assert model.model_url == "/models/small"


def test_counts_after_known_faults(joint: MakeJoint) -> None:
    with ScriptedCloud(peers.answer) as cloud:
        joining = joint(cloud.address)
        joining.inference(np.array([[EASY], [HARD], [HARD]]))
        cloud.behaviour = peers.fail
        joining.inference(np.array([[HARD], [EASY]]))
    expected = Counts(seen=5, hard=3, uploaded=3, answered_by_cloud=2, fallbacks=1)
    assert joining.counts == expected


def tireless() -> CircuitBreaker:
    """Asks again at once: a test of many faults in a row needs no pauses."""
    return CircuitBreaker(Backoff(base_s=0, max_s=0), clock=itertools.count(0, 3600).__next__)


BEHAVIOURS = [
    peers.answer,
    peers.answer,
    peers.answer,
    peers.answer_then_close_quietly,
    peers.fail,
    peers.be_busy,
    peers.close_unanswered,
    peers.reset_in_body,
    peers.cut_body,
    peers.speak_garbage,
    peers.answer_garbage,
    peers.answer_too_few,
]


@pytest.mark.parametrize("seed", range(6))
def test_counts_are_exact_under_a_random_mixture_of_failures(joint: MakeJoint, seed: int) -> None:
    chance = random.Random(seed)
    good = {peers.answer, peers.answer_then_close_quietly}
    answered = 0

    def behave(exchange: peers.Exchange) -> bool | None:
        nonlocal answered
        behaviour = chance.choice(BEHAVIOURS)
        answered += len(exchange.samples) * (behaviour in good)
        return behaviour(exchange)

    results, seen, hard = [], 0, 0
    with ScriptedCloud(behave) as cloud:
        joining = joint(cloud.address, cloud=CloudClient(cloud.address, breaker=tireless()))
        for _ in range(150):
            batch = mixed(chance.randrange(8), seed=chance.randrange(10**6))
            seen, hard = seen + len(batch), hard + int((batch == np.float32(HARD)).sum())
            results += joining.inference(batch)
    counts = joining.counts
    assert (counts.seen, counts.hard) == (seen, hard) == (len(results), hard)
    assert counts.answered_by_cloud == answered
    assert counts.answered_by_cloud == sum(r.answered_by is AnsweredBy.CLOUD for r in results)
    assert counts.fallbacks == hard - answered > 0
    assert counts.uploaded == hard, "every request reached the cloud in full"
    for result in results:
        doubled = 2 if result.answered_by is AnsweredBy.CLOUD else 1
        assert result.answer == pytest.approx(doubled * result.edge_answer)


@contextlib.contextmanager
def dead_port() -> Iterator[Address]:
    yield Address(LOOPBACK, free_port())


@contextlib.contextmanager
def hanging_cloud() -> Iterator[Address]:
    with ScriptedCloud(peers.hang) as cloud:
        yield cloud.address


@contextlib.contextmanager
def trickling_cloud() -> Iterator[Address]:
    with ScriptedCloud(peers.trickle_head) as cloud:
        yield cloud.address


@pytest.mark.parametrize("dead", [dead_port, peers.silent_listener, hanging_cloud, trickling_cloud])
def test_few_batches_pay_for_a_dead_cloud(joint: MakeJoint, dead: Any) -> None:
    """Of 240, one each 5 ms by the breaker's clock."""
    now_s = 0.0
    backoff = Backoff(
        base_s=0.25, max_s=5.0, floor_s=0.05, uniform=lambda low, high: (low + high) / 2
    )
    breaker = CircuitBreaker(backoff, clock=lambda: now_s)
    asked = 0
    with dead() as address:
        joining = joint(address, cloud=CloudClient(address, timeout_s=0.1, breaker=breaker))
        for batch in range(240):
            now_s = batch * 0.005
            (result,) = joining.inference(peers.samples(1, HARD))
            assert result.answered_by is AnsweredBy.EDGE
            asked += result.reason is not Reason.CLOUD_BACKING_OFF
    assert 2 <= asked <= 6


def test_cloud_that_returns_is_used_again(joint: MakeJoint) -> None:
    port = free_port()
    joining = joint(Address(LOOPBACK, port))
    for _ in range(20):
        joining.inference(peers.samples(1, HARD))
    with ScriptedCloud(peers.answer, port):
        eventually(
            "an answer of the cloud",
            lambda: joining.inference(peers.samples(1, HARD))[0].reason is Reason.HARD,
        )


class Wrong(Doubler):
    def __init__(self, answers: Any) -> None:
        self.answers = answers

    def predict(self, batch: tensors.Array) -> Any:
        return self.answers


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([1], "gave 1 answers for 2 samples"),
        (np.zeros((3, 1)), "gave 3 answers for 2 samples"),
        (None, "gave NoneType"),
        (iter([1, 2]), "gave list_iterator"),
    ],
)
def test_wrong_number_of_answers_is_a_clear_error(answers: Any, says: str) -> None:
    joining = JointInference(Wrong(answers), EdgeOnly(), environment=WorkerEnvironment())
    with pytest.raises(EstimatorError, match=says):
        joining.inference(np.zeros((2, 1)))
    assert joining.counts == Counts()


def test_prediction_that_the_algorithm_cannot_read_is_a_clear_error(joint: MakeJoint) -> None:
    joining = joint(Address(LOOPBACK, 1))
    with pytest.raises(MiningError, match="Threshold"):
        joining.inference(np.zeros((2, 1, 2)))
    assert joining.counts == Counts()


def test_batch_of_objects_is_a_clear_error(joint: MakeJoint) -> None:
    with pytest.raises(TensorError, match="cannot travel"):
        joint(Address(LOOPBACK, 1)).inference(["text"])


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"hem_name": "Nope"}, "HEM_NAME"),
        ({"hem_name": "IBT", "hem_parameters": {"threshold_img": "2"}}, "threshold_img"),
        ({"hem_name": "CloudOnly"}, "BIG_MODEL_IP"),
    ],
)
def test_wrong_environment_is_an_error_that_names_the_variable(
    environment: dict[str, Any], says: str
) -> None:
    with pytest.raises(SettingsError, match=says):
        JointInference(Doubler(), environment=WorkerEnvironment(**environment))


def test_without_hem_name_the_edge_answers_all(joint: MakeJoint) -> None:
    (result,) = joint(None, hem_name="").inference(peers.samples(1, HARD))
    assert result.reason is Reason.EASY


def test_own_algorithm_needs_no_base_class(joint: MakeJoint) -> None:
    with ScriptedCloud(peers.answer) as cloud:
        joining = joint(cloud.address, lambda prediction: CloudOnly()(prediction))
        assert joining.inference(peers.samples(1, EASY))[0].reason is Reason.HARD


class NotThreadSafe(Doubler):
    is_inside = False

    def predict(self, batch: tensors.Array) -> tensors.Array:
        assert not self.is_inside, "two threads in one estimator"
        self.is_inside = True
        time.sleep(0.001)  # lets another thread in
        self.is_inside = False
        return batch.copy()


def test_threads_get_their_own_answers_and_counts_add_up() -> None:
    wrong: list[Any] = []
    with ScriptedCloud(peers.answer) as cloud:
        environment = WorkerEnvironment(big_model=cloud.address, cloud_timeout_s=PATIENCE_S)
        joining = JointInference(NotThreadSafe(), Threshold(), environment=environment)

        def infer(value: float) -> None:
            for _ in range(20):
                (result,) = joining.inference(peers.samples(1, value))
                expected = value * (2 if value < 0.5 else 1)
                if result.answer != pytest.approx(expected):
                    wrong.append(result)

        values = [0.1, 0.2, 0.3, 0.4, 0.6, 0.7]
        threads = [threading.Thread(target=infer, args=(value,)) for value in values]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        joining.close()
    assert wrong == []
    assert joining.counts == Counts(seen=120, hard=80, uploaded=80, answered_by_cloud=80)


def environment_with_reports(cloud: Address, controller: LocalController) -> WorkerEnvironment:
    address = Address(LOOPBACK, int(controller.server_address[1]))
    return WorkerEnvironment(
        big_model=cloud,
        hem_name="Threshold",
        lc_server=LCServer(address, "/w/secret"),
        worker_name="w",
    )


def test_what_is_reported_is_what_was_counted() -> None:
    with ScriptedCloud(peers.answer) as cloud, LocalController() as controller:
        environment = environment_with_reports(cloud.address, controller)
        with JointInference(Doubler(), environment=environment) as joining:
            for _ in range(10):
                joining.inference(np.array([[HARD], [EASY]]))
            assert joining.flush(PATIENCE_S)
    info = controller.messages[-1]["output"]["taskInfo"]
    assert {name: info[name] for name in ("seen", "hard", "uploaded")} == {
        "seen": 20,
        "hard": 10,
        "uploaded": 10,
    }
    assert controller.messages[-1]["output"]["counts"] == [
        *("seen", "hard", "uploaded", "answeredByCloud", "fallbacks")
    ]
    assert controller.messages[-1]["heartbeatSeconds"] == 0, "leaving the block ends the reports"


def test_measurement_without_reports_reports_nothing() -> None:
    with ScriptedCloud(peers.answer) as cloud, LocalController() as controller:
        environment = environment_with_reports(cloud.address, controller)
        with JointInference(Doubler(), environment=environment, is_reporting=False) as joining:
            joining.inference(peers.samples(3))
            assert not joining.flush(0.1)
        assert controller.messages == []


def test_wait_for_cloud_ends_with_its_time() -> None:
    environment = WorkerEnvironment(big_model=Address(LOOPBACK, free_port()))
    joining = JointInference(Doubler(), CloudOnly(), environment=environment)
    started_s = time.monotonic()
    assert not joining.wait_for_cloud(0.1)
    assert time.monotonic() - started_s < PATIENCE_S / 2
