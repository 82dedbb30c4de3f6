"""The bodies that workers may send, and the messages that they become."""

import json
from typing import Any

import pytest

from localcontroller.workers.messages import (
    InvalidMessage,
    parse_edgeai_message,
    parse_sedna_message,
)

WORKER_MESSAGE: dict[str, Any] = {
    "phase": "inference",
    "status": "running",
    "instance": "a1",
    "sequence": 4,
    "heartbeatSeconds": 10,
    "output": {
        "taskInfo": {
            "seen": 10,
            "hard": 3,
            "uploaded": 3,
            "answeredByCloud": 2,
            "fallbacks": 1,
            "accuracy": 0.5,
            "startTime": "2030-01-01T00:00:00Z",
        }
    },
    "unknown": ["from a later version"],
}

SEDNA_MESSAGE: dict[str, Any] = {
    "name": "w",
    "namespace": "default",
    "ownerName": "sedna",
    "ownerKind": "default",
    "kind": "inference",
    "results": [],
    "ownerInfo": {
        "startTime": "2030-01-01 00:00:00",
        "updateTime": "2030-01-01 00:00:30",
        "inferenceNumber": 12,
        "hardExampleNumber": 4,
        "uploadCloudRatio": 0.33,
    },
}


def test_a_worker_message_is_read_whole() -> None:
    message = parse_edgeai_message(json.dumps(WORKER_MESSAGE).encode())
    assert message.counts == {
        "seen": 10,
        "hard": 3,
        "uploaded": 3,
        "answeredByCloud": 2,
        "fallbacks": 1,
    }
    assert message.numbers == {"accuracy": 0.5}
    assert message.details == {"startTime": "2030-01-01T00:00:00Z"}
    assert (message.instance, message.sequence, message.heartbeat_s) == ("a1", 4, 10.0)
    assert (message.phase, message.status) == ("inference", "running")


def message_body(info: dict[str, Any], counts: list[str] | None = None) -> bytes:
    output = {"taskInfo": info} if counts is None else {"taskInfo": info, "counts": counts}
    return json.dumps({"status": "running", "output": output}).encode()


COUNTED: dict[str, tuple[list[str] | None, dict[str, int], dict[str, float]]] = {
    "a name of the image's choice": (["frames"], {"frames": 7}, {"seen": 3, "loss": 0.5}),
    "none": ([], {}, {"frames": 7, "seen": 3, "loss": 0.5}),
    "a name that task info lacks": (["frames", "dropped"], {"frames": 7}, {"seen": 3, "loss": 0.5}),
    "no list, from an old image": (None, {"seen": 3}, {"frames": 7, "loss": 0.5}),
}


@pytest.mark.parametrize("case", COUNTED)
def test_the_message_names_its_counts(case: str) -> None:
    named, counts, numbers = COUNTED[case]
    message = parse_edgeai_message(message_body({"frames": 7, "seen": 3, "loss": 0.5}, named))
    assert (message.counts, message.numbers) == (counts, numbers)


BAD_COUNTS: dict[str, tuple[bytes, str]] = {
    "text": (message_body({"frames": "7"}, ["frames"]), "frames"),
    "negative": (message_body({"frames": -7}, ["frames"]), "frames"),
    "no list": (message_body({"frames": 7}, "frames"), "counts"),  # type: ignore[arg-type]
    "too many": (message_body({}, [f"n{n}" for n in range(33)]), "counts"),
    "a long name": (message_body({}, ["n" * 64]), "counts"),
}


@pytest.mark.parametrize("case", BAD_COUNTS)
def test_an_invalid_count_is_refused_by_its_name(case: str) -> None:
    body, named = BAD_COUNTS[case]
    with pytest.raises(InvalidMessage, match=named):
        parse_edgeai_message(body)


def test_only_the_status_is_required() -> None:
    message = parse_edgeai_message(b'{"status": "completed"}')
    assert (message.instance, message.sequence, message.heartbeat_s) == ("", None, 0.0)


BAD_WORKER_MESSAGES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "body"),
    "no JSON": (b"{", "body"),
    "no UTF-8": (b'{"status": "\xff"}', "body"),
    "no object": (b"[]", "object"),
    "no status": (b"{}", "status"),
    "unknown status": (b'{"status": "lost"}', "$.status"),
    "phase of a wrong type": (b'{"status": "running", "phase": 1}', "$.phase"),
    "negative sequence": (b'{"status": "running", "sequence": -1}', "$.sequence"),
    "huge sequence": (b'{"status": "running", "sequence": 1e300}', "$.sequence"),
    "negative heartbeat": (b'{"status": "running", "heartbeatSeconds": -1}', "$.heartbeatSeconds"),
    "endless heartbeat": (b'{"status": "running", "heartbeatSeconds": 1e9}', "$.heartbeatSeconds"),
    "not a number": (b'{"status": "running", "heartbeatSeconds": NaN}', "body"),
    "negative count": (b'{"status": "running", "output": {"taskInfo": {"seen": -1}}}', "seen"),
    "half a count": (b'{"status": "running", "output": {"taskInfo": {"hard": 0.5}}}', "hard"),
    "count as text": (b'{"status": "running", "output": {"taskInfo": {"seen": "1"}}}', "seen"),
    "count beyond 2**53": (
        b'{"status": "running", "output": {"taskInfo": {"seen": 99999999999999999}}}',
        "taskInfo",
    ),
    "nested info": (b'{"status": "running", "output": {"taskInfo": {"a": {}}}}', "taskInfo"),
    "deep nesting": (b'{"status": "running", "x": ' + b"[" * 30000, "body"),
    "too much info": (
        json.dumps(
            {"status": "running", "output": {"taskInfo": {str(n): 0.5 for n in range(6000)}}}
        ).encode(),
        "limit",
    ),
}


@pytest.mark.parametrize("case", BAD_WORKER_MESSAGES)
def test_a_bad_worker_message_is_refused_by_its_field(case: str) -> None:
    data, named = BAD_WORKER_MESSAGES[case]
    with pytest.raises(InvalidMessage) as refusal:
        parse_edgeai_message(data)
    assert named in str(refusal.value)


def test_sednas_numbers_become_counts() -> None:
    message = parse_sedna_message(json.dumps(SEDNA_MESSAGE).encode(), worker="w")
    assert message.counts == {"seen": 12, "hard": 4, "uploaded": 4}
    assert message.details == {
        "startTime": "2030-01-01 00:00:00",
        "updateTime": "2030-01-01 00:00:30",
        "uploadCloudRatio": "0.33",
    }
    assert (message.phase, message.status, message.heartbeat_s) == ("inference", "running", 0.0)


def test_sednas_start_time_does_not_identify_the_process() -> None:
    """`startTime` is the start of a reporting period, or of a round."""
    message = parse_sedna_message(json.dumps(SEDNA_MESSAGE).encode(), worker="w")
    assert message.instance == ""


def sedna_trainer(metrics: Any) -> bytes:
    """The body that Sedna's trainer posts after its first round."""
    sent = {
        "name": "w",
        "namespace": "default",
        "ownerName": "digits",
        "ownerKind": "default",
        "kind": "train",
        "status": "running",
        "results": [{"format": "ckpt", "url": "/model/digits", "metrics": metrics}],
        "ownerInfo": {
            "currentRound": 1,
            "sampleCount": 30,
            "startTime": "2030-01-01 00:00:00",
            "updateTime": "2030-01-01 00:00:01",
        },
    }
    return json.dumps(sent).encode()


def test_the_round_of_sednas_trainer_is_a_number() -> None:
    message = parse_sedna_message(sedna_trainer(None), worker="w")
    assert message.numbers == {"currentRound": 1, "sampleCount": 30}
    assert (message.phase, message.status, message.counts) == ("train", "running", {})


TRAINED: dict[str, tuple[Any, dict[str, float]]] = {
    "a history": ({"loss": [1.0, 0.5], "accuracy": [0.1, 0.75]}, {"loss": 0.5, "accuracy": 0.75}),
    "numbers": ({"loss": 0.5}, {"loss": 0.5}),
    "an empty history": ({"loss": []}, {}),
    "text": ({"loss": "0.5", "note": None}, {}),
    "no finite number": ({"loss": 10**400}, {}),
    "a list": ([0.5], {}),
    "nothing": (None, {}),
}


@pytest.mark.parametrize("case", TRAINED)
def test_the_values_that_sednas_estimator_returned_are_metrics(case: str) -> None:
    metrics, expected = TRAINED[case]
    message = parse_sedna_message(sedna_trainer(metrics), worker="w")
    names = {name for name in message.numbers if name.startswith("metrics.")}
    assert {name.removeprefix("metrics."): message.numbers[name] for name in names} == expected


def test_a_round_with_a_long_history_is_accepted() -> None:
    message = parse_sedna_message(sedna_trainer({"loss": [0.5] * 12_000}), worker="w")
    assert message.numbers["metrics.loss"] == 0.5
    assert len(message.details["results"]) < 2000


def test_sednas_results_are_kept_as_text() -> None:
    results = [{"format": "ckpt", "url": "/m", "metrics": {"loss": 0.1}}]
    data = json.dumps({"name": "w", "status": "completed", "results": results}).encode()
    message = parse_sedna_message(data, worker="w")
    assert json.loads(message.details["results"]) == results
    assert message.status == "completed"


BAD_SEDNA_MESSAGES: dict[str, tuple[bytes, str]] = {
    "another name": (b'{"name": "v"}', "name"),
    "no name": (b"{}", "name"),
    "unknown status": (b'{"name": "w", "status": "waiting"}', "$.status"),
    "info of a wrong type": (b'{"name": "w", "ownerInfo": 1}', "$.ownerInfo"),
    "count as text": (b'{"name": "w", "ownerInfo": {"inferenceNumber": "x"}}', "inferenceNumber"),
    "count as boolean": (b'{"name": "w", "ownerInfo": {"hardExampleNumber": true}}', "hardExample"),
}


@pytest.mark.parametrize("case", BAD_SEDNA_MESSAGES)
def test_a_bad_sedna_message_is_refused_by_its_field(case: str) -> None:
    data, named = BAD_SEDNA_MESSAGES[case]
    with pytest.raises(InvalidMessage) as refusal:
        parse_sedna_message(data, worker="w")
    assert named in str(refusal.value)


def test_the_models_and_metrics_of_sednas_evaluation_are_told_apart() -> None:
    results = [
        {"format": "pb", "url": "/out/2/model.pb", "metrics": {"precision": [0.5, 0.75]}},
        {"format": "pb", "url": "/models/m.pb", "metrics": {"precision": [0.25], "loss": None}},
    ]
    body = {"name": "w", "kind": "eval", "status": "completed", "results": results}
    message = parse_sedna_message(json.dumps(body).encode(), worker="w")
    assert message.numbers == {
        "metrics.precision": 0.75,
        "metrics.precision[0]": 0.5,
        "metrics.precision[1]": 0.75,
        "metrics.1.precision": 0.25,
        "metrics.1.precision[0]": 0.25,
    }
    assert message.details["results.1.url"] == "/models/m.pb"
    assert message.details["results.0.format"] == "pb"


def test_the_values_of_both_models_come_before_items_of_lists() -> None:
    metrics = {f"m{n}": [0.9, 0.8, 0.7, 0.6] for n in range(4)}
    results = [{"url": "U", "metrics": metrics}, {"url": "V", "metrics": metrics}]
    body = {"name": "w", "kind": "eval", "status": "completed", "results": results}
    names = list(parse_sedna_message(json.dumps(body).encode(), worker="w").numbers)
    values = [f"metrics.{place}m{n}" for place in ("", "1.") for n in range(4)]
    assert names[:8] == values
    assert names[8:10] == ["metrics.m0[0]", "metrics.1.m0[0]"]


def test_a_metric_that_is_no_number_is_missing() -> None:
    results = [{"url": "u", "metrics": {"p": float("nan"), "q": 0.5, "r": float("inf")}}]
    body = {"name": "w", "kind": "eval", "status": "completed", "results": results}
    message = parse_sedna_message(json.dumps(body).encode(), worker="w")
    assert message.numbers == {"metrics.q": 0.5}
    with pytest.raises(InvalidMessage):
        parse_sedna_message(b'{"name": NaN}', worker="w")
