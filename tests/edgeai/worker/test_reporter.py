"""Reports against a real LocalController that goes away and comes back."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from edgeai.backoff import Backoff
from edgeai.worker.environment import from_environ
from edgeai.worker.reporter import POST_TIMEOUT_S, Reporter, ReportTarget
from edgeai.worker.results import Counts
from tests.edgeai.worker import peers
from tests.edgeai.worker.peers import LOOPBACK, LocalController
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S

SECRET = "0123456789abcdef" * 4
ONE = Counts(seen=3, hard=2, uploaded=2, answered_by_cloud=1, fallbacks=1)

MakeReporter = Callable[..., Reporter[Counts]]


@pytest.fixture
def controller() -> Iterator[LocalController]:
    with LocalController() as controller:
        yield controller


@pytest.fixture
def reporter() -> Iterator[MakeReporter]:
    with contextlib.ExitStack() as stack:

        def make(
            port: int, *, period_s: float = 0.01, heartbeat_s: float = 0.0
        ) -> Reporter[Counts]:
            variables = {
                "LC_SERVER": f"http://{LOOPBACK}:{port}/w/{SECRET}",
                "WORKER_NAME": "digits edge/0",
            }
            server = from_environ(variables).lc_server
            assert server is not None
            made = Reporter(
                ReportTarget(server, variables["WORKER_NAME"]),
                phase="inference",
                info=Counts(),
                period_s=period_s,
                heartbeat_s=heartbeat_s,
                backoff=Backoff(base_s=0.02, max_s=0.02),
            )
            stack.callback(made.close, 0.0)
            return made

        yield make


def add(reporter: Reporter[Counts], counts: Counts) -> None:
    reporter.change(lambda told: told + counts)


def port_of(controller: LocalController) -> int:
    return int(controller.server_address[1])


def seen(message: dict[str, object]) -> int:
    info = message["output"]["taskInfo"]  # type: ignore[index]
    return int(info["seen"])


def test_first_report_comes_without_any_inference(
    controller: LocalController, reporter: MakeReporter
) -> None:
    reporter(port_of(controller), heartbeat_s=7.0)
    controller.wait_for(lambda messages: len(messages) == 1)
    message = controller.messages[0]
    assert controller.paths[0] == f"/w/{SECRET}/v1/workers/digits%20edge%2F0/status"
    assert (message["phase"], message["status"]) == ("inference", "running")
    assert message["sequence"] == 1
    assert message["heartbeatSeconds"] == 7.0
    assert len(message["instance"]) == 16
    info = message["output"]["taskInfo"]
    assert info["startTime"] == info["updateTime"]
    assert info["startTime"].endswith("Z")
    assert set(info) == {
        "seen", "hard", "uploaded", "answeredByCloud", "fallbacks", "startTime", "updateTime",
    }  # fmt: skip


def test_reports_carry_totals_and_a_growing_sequence(
    controller: LocalController, reporter: MakeReporter
) -> None:
    reporting = reporter(port_of(controller))
    for _ in range(3):
        add(reporting, ONE)
        assert reporting.flush(PATIENCE_S)
    info = controller.messages[-1]["output"]["taskInfo"]
    assert (info["seen"], info["hard"], info["uploaded"]) == (9, 6, 6)
    assert (info["answeredByCloud"], info["fallbacks"]) == (3, 3)
    sequences = [message["sequence"] for message in controller.messages]
    assert sequences == sorted(set(sequences))
    assert len({message["instance"] for message in controller.messages}) == 1


def test_each_process_has_an_instance_of_its_own(
    controller: LocalController, reporter: MakeReporter
) -> None:
    for _ in range(2):
        assert reporter(port_of(controller)).flush(PATIENCE_S)
    assert len({message["instance"] for message in controller.messages}) == 2


def test_changes_within_a_period_are_one_report(
    controller: LocalController, reporter: MakeReporter
) -> None:
    reporting = reporter(port_of(controller), period_s=0.3)
    assert reporting.flush(PATIENCE_S)
    for _ in range(200):
        add(reporting, ONE)
    controller.wait_for(lambda messages: seen(messages[-1]) == 600)
    assert len(controller.messages) == 2


def test_heartbeats_come_without_changes(
    controller: LocalController, reporter: MakeReporter
) -> None:
    reporter(port_of(controller), heartbeat_s=0.05)
    controller.wait_for(lambda messages: len(messages) >= 4)


def test_latest_state_arrives_when_the_controller_returns(reporter: MakeReporter) -> None:
    port = free_port()
    reporting = reporter(port)
    for _ in range(50):
        add(reporting, ONE)
    assert not reporting.flush(0.1)
    with LocalController(port) as controller:
        assert reporting.flush(PATIENCE_S)
        assert [seen(message) for message in controller.messages] == [150], "state, no queue"


def test_controller_that_restarts_is_told_again(reporter: MakeReporter) -> None:
    with LocalController() as first:
        port = port_of(first)
        reporting = reporter(port)
        add(reporting, ONE)
        assert reporting.flush(PATIENCE_S)
    add(reporting, ONE)
    assert not reporting.flush(0.1)
    with LocalController(port) as second:
        second.wait_for(lambda messages: bool(messages) and seen(messages[-1]) == 6)


@pytest.mark.parametrize("status", [400, 403, 413, 500, 503])
def test_refused_report_is_not_acknowledged_and_tried_again(
    status: int, reporter: MakeReporter
) -> None:
    with LocalController(status=status) as controller:
        reporting = reporter(port_of(controller))
        assert not reporting.flush(0.1)
        controller.wait_for(lambda messages: len(messages) >= 3)
        controller.status = 200
        assert reporting.flush(PATIENCE_S)


def test_a_task_that_was_taken_away_is_not_waited_for(
    controller: LocalController, reporter: MakeReporter
) -> None:
    """Its job is deleted: the worker is to end, not to tell its end to nobody."""
    reporting = reporter(port_of(controller))
    assert reporting.flush(PATIENCE_S)
    controller.status = 403
    started_s = time.monotonic()
    assert not reporting.close(PATIENCE_S)
    assert time.monotonic() - started_s < PATIENCE_S / 2


def test_a_task_that_is_still_on_its_way_is_waited_for(reporter: MakeReporter) -> None:
    with LocalController(status=403) as controller:
        reporting = reporter(port_of(controller))
        controller.wait_for(bool)
        coming = threading.Timer(0.1, setattr, (controller, "status", 200))
        coming.start()
        assert reporting.close(PATIENCE_S)
        coming.join()


def test_flush_is_false_while_only_an_older_state_is_acknowledged(
    controller: LocalController, reporter: MakeReporter
) -> None:
    reporting = reporter(port_of(controller))
    assert reporting.flush(PATIENCE_S)
    controller.status = 503
    add(reporting, ONE)
    assert not reporting.flush(0.1)


def test_hanging_controller_never_blocks_the_caller(reporter: MakeReporter) -> None:
    with peers.silent_listener() as address:
        reporting = reporter(address.port)
        started_s = time.monotonic()
        for _ in range(1000):
            add(reporting, ONE)
        assert not reporting.close(0.05)
        assert time.monotonic() - started_s < POST_TIMEOUT_S


def test_last_report_takes_back_the_promise_of_heartbeats(
    controller: LocalController, reporter: MakeReporter
) -> None:
    reporting = reporter(port_of(controller), period_s=30, heartbeat_s=30)
    add(reporting, ONE)
    assert reporting.close(PATIENCE_S)
    assert controller.messages[-1]["heartbeatSeconds"] == 0
    assert seen(controller.messages[-1]) == 3
    assert reporting.close(0), "closing twice is nothing new"


def test_secret_appears_in_no_log(reporter: MakeReporter, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with LocalController(status=403) as controller:  # quotes the path in its refusal
        port = port_of(controller)
        reporting = reporter(port)
        controller.wait_for(lambda messages: len(messages) >= 2)
    assert not reporting.flush(0.1)
    assert "HTTP 403 refused /w/***/v1" in caplog.text
    assert SECRET not in caplog.text


def test_long_outage_is_said_once(reporter: MakeReporter, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with LocalController(status=503) as controller:
        reporting = reporter(port_of(controller))
        controller.wait_for(lambda messages: len(messages) >= 5)
        controller.status = 200
        assert reporting.flush(PATIENCE_S)
    said = [record.getMessage() for record in caplog.records if record.name.endswith("reporter")]
    assert len([message for message in said if "not accepted" in message]) == 1
    assert len([message for message in said if "accepted again" in message]) == 1


def test_thread_ends_with_close(controller: LocalController, reporter: MakeReporter) -> None:
    reporting = reporter(port_of(controller))
    reporting.close(PATIENCE_S)
    reporting._thread.join(PATIENCE_S)
    assert "edgeai-reporter" not in {thread.name for thread in threading.enumerate()}
