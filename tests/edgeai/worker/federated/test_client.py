"""What a participant does about answers: damaged, lost, refused, or of an aggregator made anew."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgeai.worker.errors import FederationError, WeightsError
from edgeai.worker.federated import protocol
from edgeai.worker.federated.client import MAX_REJOINS, MAX_RESENDS, AggregatorClient, RoundClosed
from edgeai.worker.federated.layout import Layout, TensorLayout
from edgeai.worker.federated.protocol import Commit, Encoding, Received, Welcome
from tests.edgeai.worker.federated.conftest import Federation, own
from tests.edgeai.worker.federated.scripted import (
    BEAT,
    JOIN,
    LEAVE,
    LOST,
    Answer,
    Asked,
    Script,
    ScriptedAggregator,
)
from tests.edgeai.worker.federated.test_faults import ONE
from tests.edgeai.worker.federated.test_federation import settings
from tests.support.waiting import PATIENCE_S, eventually

ROUND = "GET /v1/round"
OFFER = "POST /v1/rounds/1/updates/a"
UNKNOWN: Answer = (404, b'{"error": "participant a has not joined: join first"}')
DAMAGED: Answer = (400, b'{"error": "make an offer first"}')
PIECES = 6
LONG = np.zeros(PIECES * protocol.PIECE_NUMBERS, dtype=np.float32)


@pytest.fixture
def client(client: AggregatorClient) -> AggregatorClient:
    """Has joined."""
    client.join(ONE)
    return client


def once(what: str, answer: Answer) -> Script:
    """This answer to the first such request."""
    left = [answer]
    return lambda asked: left.pop() if asked.what == what and left else None


def always(what: str, answer: Answer) -> Script:
    return lambda asked: answer if asked.what == what else None


# ---- I am still here ----------------------------------------------------------------------------


def test_a_participant_says_that_it_is_still_here(aggregator: ScriptedAggregator) -> None:
    aggregator.welcome = Welcome(Encoding(), beat_s=0.01)
    client = AggregatorClient(aggregator.address, name="a", secret=own("a"))
    client.join(ONE)
    eventually("three beats", lambda: aggregator.count(BEAT) > 2)
    client.close()
    assert aggregator.asked[-1].what == LEAVE


def test_an_aggregator_made_anew_is_joined_while_the_trainer_trains(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    """Nothing but the beats of the other thread is asked meanwhile."""
    aggregator.welcome = Welcome(Encoding(), beat_s=0.01)
    aggregator.script = once(ROUND, UNKNOWN)
    client.next_round()
    joins = aggregator.count(JOIN)
    aggregator.script = once(BEAT, UNKNOWN)
    eventually("another join", lambda: aggregator.count(JOIN) == joins + 1)


def test_the_rhythm_is_that_of_the_last_welcome(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    assert aggregator.count(BEAT) == 0
    aggregator.welcome = Welcome(Encoding(), beat_s=0.01)
    aggregator.script = once(ROUND, UNKNOWN)
    client.next_round()
    eventually("two beats", lambda: aggregator.count(BEAT) > 1)


def test_closing_waits_little_for_an_aggregator_that_hangs(
    aggregator: ScriptedAggregator,
) -> None:
    """A pod that is stopped has 30 s in all."""
    aggregator.welcome = Welcome(Encoding(), beat_s=0.01)

    def script(asked: Asked) -> None:
        if asked.what in (BEAT, LEAVE):
            aggregator.hang()

    aggregator.script = script
    client = AggregatorClient(aggregator.address, name="a", secret=own("a"))
    client.join(ONE)
    eventually("the first beat", lambda: aggregator.count(BEAT) == 1)
    before_s = time.monotonic()
    client.close()
    assert time.monotonic() - before_s < PATIENCE_S / 2  # the aggregator hangs for PATIENCE_S
    assert aggregator.count(LEAVE) == 1


def test_who_has_closed_is_not_joined_again_by_a_beat_under_way(
    aggregator: ScriptedAggregator,
) -> None:
    """It would be waited for until it counts as gone."""
    aggregator.welcome = Welcome(Encoding(), beat_s=0.01)

    def script(asked: Asked) -> Answer | None:
        if asked.what != BEAT:
            return None
        eventually("the leave", lambda: aggregator.count(LEAVE) > 0)
        return UNKNOWN

    aggregator.script = script
    before = set(threading.enumerate())
    client = AggregatorClient(aggregator.address, name="a", secret=own("a"), leave_timeout_s=0.2)
    client.join(ONE)
    (beating,) = (each for each in set(threading.enumerate()) - before if "edgeai" in each.name)
    eventually("the first beat", lambda: aggregator.count(BEAT) == 1)
    client.close()
    beating.join(PATIENCE_S)
    assert (aggregator.count(LEAVE), aggregator.count(JOIN)) == (1, 1)


# ---- joined no more -----------------------------------------------------------------------------


def test_an_update_goes_on_where_it_was_when_the_aggregator_is_made_anew(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    aggregator.script = once(f"PUT {OFFER[5:]}/1", UNKNOWN)
    client.send(1, LONG[: 3 * protocol.PIECE_NUMBERS], commit=Commit("", 1))
    assert aggregator.updates()[1:] == [
        "POST ",
        "PUT /0",
        "PUT /1",
        JOIN,
        "PUT /1",
        "PUT /2",
        "POST /commit",
    ]


def test_an_update_of_a_round_that_has_moved_is_not_sent_again(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    answers = iter([UNKNOWN, (409, b'{"error": "round 1 is over"}')])
    aggregator.script = lambda asked: next(answers) if asked.what == OFFER else None
    with pytest.raises(RoundClosed, match="round 1 is over"):
        client.send(1, LONG[:3], commit=Commit("", 1))


def test_an_aggregator_that_never_knows_it_is_not_joined_for_ever(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    aggregator.script = always(ROUND, UNKNOWN)
    with pytest.raises(FederationError, match="has not joined: join first"):
        client.next_round()
    assert aggregator.count(JOIN) == 1 + MAX_REJOINS


def test_an_aggregator_that_is_started_anew_again_and_again_is_joined_each_time(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    """In one request, which outlives all of them."""
    restarts = MAX_REJOINS + 2
    gone: Answer = (0, b"")
    answers = iter([gone, UNKNOWN] * restarts)
    aggregator.script = lambda asked: next(answers, None) if asked.what == ROUND else None
    assert client.next_round() == aggregator.state
    assert aggregator.count(JOIN) == 1 + restarts


@pytest.mark.parametrize("status", [400, 404, 409, 410, 422])
def test_a_join_that_is_refused_ends_in_the_aggregators_words(
    aggregator: ScriptedAggregator, status: int
) -> None:
    aggregator.script = always(JOIN, (status, b'{"error": "not you"}'))
    client = AggregatorClient(aggregator.address, name="a", secret=own("a"))
    with pytest.raises(FederationError, match="refuses: not you"):
        client.join(ONE)
    client.close()
    assert aggregator.count(JOIN) == 1


def test_all_requests_of_a_process_name_it(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    client.next_round()
    client.send(1, LONG[:3], commit=Commit("", 1))
    assert len({asked.instance for asked in aggregator.asked} - {""}) == 1
    assert all(asked.instance for asked in aggregator.asked)


def test_a_beat_that_is_refused_for_good_does_not_join(
    aggregator: ScriptedAggregator,
) -> None:
    aggregator.welcome = Welcome(Encoding(), beat_s=0.01)
    aggregator.script = always(BEAT, (410, b'{"error": "another process"}'))
    client = AggregatorClient(aggregator.address, name="a", secret=own("a"))
    client.join(ONE)
    eventually("three beats", lambda: aggregator.count(BEAT) > 2)
    client.close()
    assert aggregator.count(JOIN) == 1


# ---- damaged and lost ---------------------------------------------------------------------------


class Receiving:
    """Keeps the pieces that come, as an aggregator that takes none a second time."""

    def __init__(self, *, loses_each_answer: bool) -> None:
        self.pieces = 0
        self._loses = loses_each_answer

    def __call__(self, asked: Asked) -> Answer | None:
        if asked.what == OFFER:
            return 200, protocol.encode(Received(self.pieces))
        if not asked.what.startswith("PUT"):
            return None
        if asked.what != f"PUT {OFFER[5:]}/{self.pieces}":
            return DAMAGED
        self.pieces += 1
        return LOST if self._loses else None


def test_a_long_update_may_lose_many_answers(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    """Each time a piece more is there: that is no reason to give up."""
    assert PIECES > MAX_RESENDS + 1
    aggregator.script = Receiving(loses_each_answer=True)
    client.send(1, LONG, commit=Commit("", 1))
    assert aggregator.updates()[-1] == "POST /commit"


def test_only_what_has_not_arrived_is_sent(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    aggregator.script = always(OFFER, (200, protocol.encode(Received(2))))
    client.send(1, LONG[: 3 * protocol.PIECE_NUMBERS], commit=Commit("", 1))
    assert aggregator.updates()[1:] == ["POST ", "PUT /2", "POST /commit"]


def test_a_damaged_piece_is_sent_again(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    aggregator.script = once(f"PUT {OFFER[5:]}/0", DAMAGED)
    client.send(1, LONG[:3], commit=Commit("", 1))
    assert aggregator.updates()[1:] == ["POST ", "PUT /0", "POST ", "PUT /0", "POST /commit"]


def test_what_always_arrives_damaged_is_given_up(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    aggregator.script = always(f"PUT {OFFER[5:]}/0", DAMAGED)
    with pytest.raises(FederationError, match="make an offer first"):
        client.send(1, LONG[:3], commit=Commit("", 1))
    assert aggregator.count(OFFER) == 1 + MAX_RESENDS


def test_damage_without_progress_is_given_up_where_a_part_has_arrived(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    def script(asked: Asked) -> Answer | None:
        if asked.what == OFFER:
            enough = aggregator.count(OFFER) > 5 * MAX_RESENDS
            return (422, b"") if enough else (200, protocol.encode(Received(1)))
        return DAMAGED if asked.what.startswith("PUT") else None

    aggregator.script = script
    with pytest.raises(FederationError, match="make an offer first"):
        client.send(1, LONG, commit=Commit("", 1))
    assert aggregator.count(OFFER) == 1 + MAX_RESENDS


def test_an_aggregator_says_when_to_ask_again(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    aggregator.retry_after_s = 0.4  # unasked, a participant waits 0.2 s at most
    aggregator.script = once(ROUND, (503, b""))
    client.next_round()
    first, second = (each.at_s for each in aggregator.asked if each.what == ROUND)
    assert second - first >= 0.4


def test_a_piece_of_the_model_that_was_cut_is_fetched_again(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    aggregator.script = once("GET /v1/rounds/1/model/0", (200, b"\0\0\0\0\0"))
    assert client.fetch(1, 3).tolist() == [0.0] * 3


def test_the_precision_of_an_aggregator_made_anew_is_used(
    aggregator: ScriptedAggregator, client: AggregatorClient
) -> None:
    """It finds what comes in the old one damaged."""
    aggregator.welcome = Welcome(Encoding("float16"), beat_s=3600.0)
    answers: Any = {OFFER: [UNKNOWN], f"PUT {OFFER[5:]}/0": [DAMAGED]}
    aggregator.script = lambda asked: answers[asked.what].pop() if answers.get(asked.what) else None
    client.send(1, LONG[:3], commit=Commit("", 1))
    sent = [asked.body for asked in aggregator.asked if asked.what.startswith("PUT")]
    assert [len(body) - protocol.CRC_BYTES for body in sent] == [12, 6]


# ---- float16 ------------------------------------------------------------------------------------


def test_a_number_that_float16_does_not_hold_is_named_before_it_is_sent(
    federation: Callable[..., Federation],
) -> None:
    aggregator = federation(settings=settings(1), encoding=Encoding("float16"))
    client = AggregatorClient(aggregator.server.address, name="a", secret=own("a"))
    client.join(ONE)
    vector = np.array([0, 65504, 70000], dtype=np.float32)
    with pytest.raises(
        WeightsError, match=r"tensor mean \[3\] .* float16, which holds up to 65504"
    ):
        client.send(0, vector, commit=Commit("", 1))
    assert client.sent_bytes == 0
    client.close()


def test_the_tensor_is_named_beyond_the_first_piece() -> None:
    most = protocol.PIECE_NUMBERS
    layout = Layout((TensorLayout("a", (most,), "float32"), TensorLayout("b", (2,), "float32")))
    vector = np.zeros(most + 2, dtype=np.float32)
    vector[-1] = -70000
    with pytest.raises(WeightsError, match=r"tensor b .* holds -inf at 1 as float16"):
        protocol.check_fits(vector, layout, Encoding("float16"))
    protocol.check_fits(vector, layout, Encoding("float32"))
