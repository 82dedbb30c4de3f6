"""Who may take part in a federation, under which name, and with how many samples."""

import json
import logging
from pathlib import Path

import msgspec
import numpy as np
import pytest

from edgeai.errors import SettingsError
from edgeai.worker.deadline import Deadline
from edgeai.worker.errors import FederationError
from edgeai.worker.federated import protocol
from edgeai.worker.federated.client import AggregatorClient
from edgeai.worker.federated.environment import FederationEnvironment, Secret, own_secret
from edgeai.worker.federated.layout import Layout, TensorLayout
from edgeai.worker.federated.participants import Participants
from edgeai.worker.federated.protocol import Commit, Join, Offer
from edgeai.worker.http_exchange import HTTPPeer, Request
from tests.edgeai.worker.federated.conftest import (
    SECRET,
    MakeFederation,
    headers,
    own,
    running,
)
from tests.edgeai.worker.federated.mean import Mean
from tests.edgeai.worker.federated.test_federation import settings, trainer
from tests.support.waiting import eventually

ONE = Layout((TensorLayout("mean", (3,), "float32"),), is_named=True)


def test_a_trainer_derives_its_secret_only_where_it_has_the_jobs() -> None:
    environment = FederationEnvironment(worker_name="a", secret=Secret(SECRET))
    assert own_secret(environment) == own("a")
    given = msgspec.structs.replace(environment, participant_secret=Secret("given"))
    assert own_secret(given) == "given"
    assert own_secret(FederationEnvironment(worker_name="a")) == ""


AS_ANOTHER = {
    "joins": ("POST", "/v1/participants/good", protocol.encode(Join(ONE, "x"))),
    "ends it": ("DELETE", "/v1/participants/good", b""),
    "beats": ("POST", "/v1/participants/good/beat", b""),
    "asks": ("GET", "/v1/round?participant=good", b""),
    "offers": ("POST", "/v1/rounds/1/updates/good", protocol.encode(Offer("x", b""))),
    "sends samples": (
        "POST",
        "/v1/rounds/1/updates/good/commit",
        protocol.encode(Commit("", 2**53)),
    ),
}


@pytest.mark.parametrize("case", AS_ANOTHER)
def test_no_participant_speaks_for_another(
    federation: MakeFederation, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    method, path, body = AS_ANOTHER[case]
    aggregator = federation(settings=settings(2, min_participants=1, rounds=1), linger_s=0.5)
    peer = HTTPPeer(aggregator.server.address, max_response_bytes=1 << 20)
    sent_as_bad = headers("bad")
    named_good = {**sent_as_bad, protocol.PARTICIPANT_HEADER: "good"}
    with_the_jobs = {**named_good, "Authorization": f"Bearer {SECRET}"}
    good = Mean()
    with running(trainer(aggregator, "good", good, [3.0])) as results:
        for sent, status in ((sent_as_bad, 403), (named_good, 401), (with_the_jobs, 401)):
            request = Request(method=method, path=path, body=body, headers=sent)
            assert peer.exchange(request, Deadline(60.0)).status == status
        # Two are expected. If bad came and went before, good would wait for another one.
        eventually("good", lambda: "participant joined: name=good" in caplog.text)
        join = Request(
            method="POST",
            path="/v1/participants/bad",
            body=protocol.encode(Join(ONE, "x")),
            headers=sent_as_bad,
        )
        assert peer.exchange(join, Deadline(60.0)).status == 200
        leave = Request(method="DELETE", path="/v1/participants/bad", headers=sent_as_bad)
        assert peer.exchange(leave, Deadline(60.0)).status == 200
    peer.close()
    assert results == [{"error": 0.0}]
    assert good.weights["mean"].tolist() == [3.0] * 3


def test_a_process_of_one_name_displaces_none_of_another(federation: MakeFederation) -> None:
    aggregator = federation(settings=settings(2))
    join = protocol.encode(Join(ONE, "of good"))
    assert aggregator.ask("POST", "/v1/participants/good", join).status == 200
    for instance in ("of good", "newer"):
        body = protocol.encode(Join(ONE, instance))
        assert aggregator.ask("POST", "/v1/participants/bad", body).status == 200
    beat = aggregator.ask("POST", "/v1/participants/good/beat", instance="of good")
    assert beat.status == 200
    stolen = aggregator.ask("POST", "/v1/participants/bad/beat", instance="of good")
    assert stolen.status == 410


def test_only_the_trainers_of_the_job_take_part(federation: MakeFederation, tmp_path: Path) -> None:
    listed = tmp_path / "participants.json"
    listed.write_text(json.dumps({"a": None}))
    aggregator = federation(settings=settings(1), participants_file=listed)
    stranger = AggregatorClient(aggregator.server.address, name="b", secret=own("b"))
    with pytest.raises(FederationError, match="the job has no training worker b"):
        stranger.join(ONE)
    stranger.close(will_return=True)
    listed.write_text(json.dumps({"a": None, "b": None}))
    join = protocol.encode(Join(ONE, "x"))
    assert aggregator.ask("POST", "/v1/participants/b", join).status == 200


BOUNDED = {
    "by its Dataset": ({"good": 3, "bad": 1}, 2.0),
    "by the largest counted Dataset": ({"good": 3, "bad": None}, 3.0),
    "by its own number, which is smaller": ({"good": 8, "bad": None}, 2.6),
    "by the median where no Dataset is counted": ({"good": None, "bad": None}, 3.0),
}


@pytest.mark.parametrize("case", BOUNDED)
def test_no_trainer_becomes_the_model_by_the_samples_that_it_tells(
    federation: MakeFederation, tmp_path: Path, case: str
) -> None:
    """The good one has three samples of 1.0. The bad one sends 5.0, as if from 2**53 samples."""
    counts, expected = BOUNDED[case]
    listed = tmp_path / "participants.json"
    listed.write_text(json.dumps(counts))
    aggregator = federation(settings=settings(2, rounds=1), participants_file=listed)
    told = 2 if "smaller" in case else 2**53
    good = Mean()
    with running(trainer(aggregator, "good", good, [1.0, 1.0, 1.0])):
        bad = AggregatorClient(aggregator.server.address, name="bad", secret=own("bad"))
        bad.join(ONE)
        state = bad.next_round()
        if state.round == 0:  # asked for the first weights
            bad.send(0, np.zeros(3, dtype=np.float32), commit=Commit("", 1))
            state = bad.next_round()
        bad.send(state.round, np.full(3, 5.0, dtype=np.float32), commit=Commit("", told))
        assert bad.next_round().is_finished
        bad.close()
    assert good.weights["mean"].tolist() == pytest.approx([expected] * 3)


def test_a_file_that_cannot_be_read_is_named_at_the_start_and_survived_later(
    tmp_path: Path,
) -> None:
    path = tmp_path / "participants.json"
    with pytest.raises(SettingsError, match=r"FEDERATION_PARTICIPANTS.*cannot be read"):
        Participants(path)
    path.write_text('{"a": 7}')
    participants = Participants(path)
    for broken in ('{"a": -1}', "[", '{"a": "7"}'):
        path.write_text(broken)
        assert (participants.limit("a"), participants.may_join("b")) == (7, False)
    path.unlink()
    assert participants.limit("a") == 7
    path.write_text('{"b": null}')
    assert (participants.limit("b"), participants.may_join("a")) == (None, False)
