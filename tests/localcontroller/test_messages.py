"""What workers may say, and how it is read."""

import json
from typing import Any

import pytest

from localcontroller.messages import (
    InvalidMessage,
    parse_sedna_message,
    parse_worker_message,
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
    message = parse_worker_message(json.dumps(WORKER_MESSAGE).encode())
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


def test_only_the_status_is_required() -> None:
    message = parse_worker_message(b'{"status": "completed"}')
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
        parse_worker_message(data)
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


def test_sednas_start_time_names_the_process() -> None:
    again = {**SEDNA_MESSAGE, "ownerInfo": {"startTime": "2030-01-02 00:00:00"}}
    first = parse_sedna_message(json.dumps(SEDNA_MESSAGE).encode(), worker="w")
    second = parse_sedna_message(json.dumps(again).encode(), worker="w")
    assert first.instance != second.instance


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
