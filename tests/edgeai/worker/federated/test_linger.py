"""After the last round: how long the aggregator stays, and what does not keep it from its end."""

from pathlib import Path

import numpy as np
import pytest

from edgeai.worker.federated import protocol
from edgeai.worker.federated.protocol import Join
from tests.edgeai.worker.federated.conftest import (
    Federation,
    MakeFederation,
    SlowDisk,
    disk_of,
    running,
)
from tests.edgeai.worker.federated.test_federation import settings
from tests.edgeai.worker.federated.test_server import NUMBERS, begun, layout, send, vector
from tests.support.waiting import PATIENCE_S, eventually

NEVER_S = 3 * PATIENCE_S  # a test that waits for this fails


def over(federation: Federation, *names: str) -> Federation:
    """After its only round, with the result saved, and all of them still there."""
    begun(federation, *names)
    for name in names:
        assert send(federation, name, vector(1)).status == 200
    eventually("the result", Path(federation.environment.model_url).exists)
    return federation


def test_who_beats_and_never_leaves_does_not_hold_the_end(
    federation: MakeFederation, caplog: pytest.LogCaptureFixture
) -> None:
    aggregator = federation(settings=settings(1, rounds=1, gone_after_s=NEVER_S), linger_s=0.5)
    over(aggregator, "a")
    assert aggregator.ask("POST", "/v1/participants/a/beat").status == 200
    assert aggregator.join() is True
    assert "the end was not fetched by every participant" in caplog.text


def test_who_leaves_with_the_result_is_waited_for_no_longer(
    federation: MakeFederation, caplog: pytest.LogCaptureFixture
) -> None:
    aggregator = federation(settings=settings(1, rounds=1, gone_after_s=NEVER_S), linger_s=NEVER_S)
    over(aggregator, "a").ask("DELETE", "/v1/participants/a")
    assert aggregator.join() is True
    assert "not fetched" not in caplog.text


def test_files_that_cannot_be_removed_do_not_make_a_failure_of_it(
    federation: MakeFederation, caplog: pytest.LogCaptureFixture
) -> None:
    aggregator = federation(settings=settings(1, rounds=1), linger_s=0.5)
    over(aggregator, "a")
    with disk_of(1):  # even the word that it is over has no room
        assert aggregator.join() is True
    assert "the rounds' files are left behind: [Errno 27] File too large" in caplog.text
    assert np.load(aggregator.environment.model_url)["mean"].tolist() == [1.0] * NUMBERS


@pytest.mark.parametrize(("method", "name"), [("POST", "late"), ("DELETE", "a")])
def test_beats_do_not_wait_for_the_disk_on_which_others_come_or_go(
    federation: MakeFederation, monkeypatch: pytest.MonkeyPatch, method: str, name: str
) -> None:
    aggregator = over(federation(settings=settings(2, rounds=1)), "a", "b")
    disk = SlowDisk(monkeypatch, "state.msgpack.new")
    body = protocol.encode(Join(layout(), name))
    with running(
        lambda: aggregator.ask(method, f"/v1/participants/{name}", body).status
    ) as results:
        assert disk.begins.wait(PATIENCE_S)
        try:
            beat = aggregator.ask("POST", "/v1/participants/b/beat", timeout_s=PATIENCE_S / 2)
        finally:
            disk.go.set()
    assert (beat.status, results) == (200, [200])
