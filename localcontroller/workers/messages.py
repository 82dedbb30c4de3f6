"""The bodies that workers send, checked and turned into one form. Pure.

Two dialects: edgeai's WorkerMessage, and the body that Sedna's worker library posts. Unknown
fields are ignored; a field of a wrong type or range is an InvalidMessage that names it. What is a
count the message itself says, so that nothing here depends on what the worker does.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from common import wire
from common.errors import EdgeAIError
from localcontroller.ledger.attempts import MAX_COUNTS, Message, Number

MAX_REPORT_BYTES: Final = 56 * 1024  # of 64 KiB in a frame; totals and a reason come on top
MAX_RESULTS_CHARS: Final = 1024  # for people; a history of training has no bound
MAX_HEARTBEAT_S: Final = 3600
MAX_EXACT: Final = 2**53  # beyond it JSON numbers lose digits

Name = Annotated[str, msgspec.Meta(max_length=253)]
CountName = Annotated[str, msgspec.Meta(max_length=63)]  # totals come on top of MAX_REPORT_BYTES
Exact = Annotated[int, msgspec.Meta(ge=-MAX_EXACT, le=MAX_EXACT)]


class InvalidMessage(EdgeAIError):
    """A worker's message that will never be accepted as it is."""


class _Output(msgspec.Struct, frozen=True, rename="camel"):
    task_info: dict[Name, Exact | float | str] = {}
    counts: Annotated[list[CountName], msgspec.Meta(max_length=MAX_COUNTS)] | None = None
    """Names in task_info of totals since the process started; None: of an image of before."""


class _WorkerMessage(msgspec.Struct, frozen=True, rename="camel"):
    status: Literal["running", "completed", "failed"]
    phase: Name = ""
    instance: Name = ""
    sequence: Annotated[int, msgspec.Meta(ge=0, le=MAX_EXACT)] | None = None
    heartbeat_seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_HEARTBEAT_S)] = 0.0
    output: _Output = _Output()


class _SednaMessage(msgspec.Struct, frozen=True, rename="camel"):
    """`ownerName` and `ownerKind` are not read: Sedna's library says "sedna" and "default"
    whatever the truth is; the secret in the URL identifies the task.
    """

    name: str
    kind: Name = ""
    status: Literal["", "running", "completed", "failed"] = ""
    owner_info: dict[str, Any] | None = None
    results: list[Any] | None = None


_worker_message: Final = msgspec.json.Decoder(_WorkerMessage)
_sedna_message: Final = msgspec.json.Decoder(_SednaMessage)

# What worker images count whose library does not say it yet, all of them for joint inference.
_UNSAID_COUNTS: Final = ("seen", "hard", "uploaded", "answeredByCloud", "fallbacks")
# Sedna uploads every hard example and knows no other reason to upload one.
_SEDNA_COUNTS: Final = {
    "inferenceNumber": ("seen",),
    "hardExampleNumber": ("hard", "uploaded"),
}


def parse_worker_message(body: bytes) -> Message:
    """Raises: InvalidMessage"""
    said = _decode(_worker_message, body)
    info = said.output.task_info
    counts = _UNSAID_COUNTS if said.output.counts is None else said.output.counts
    return _bounded(
        Message(
            instance=said.instance,
            sequence=said.sequence,
            phase=said.phase,
            status=said.status,
            heartbeat_s=said.heartbeat_seconds,
            counts={name: _count(name, info[name]) for name in counts if name in info},
            numbers={
                name: value
                for name, value in info.items()
                if name not in counts and not isinstance(value, str)
            },
            details={
                name: value
                for name, value in info.items()
                if name not in counts and isinstance(value, str)
            },
        )
    )


def parse_sedna_message(body: bytes, *, worker: str) -> Message:
    """Args: worker: the one that the path names. Raises: InvalidMessage"""
    said = _decode(_sedna_message, body)
    if said.name != worker:
        raise InvalidMessage(f"name: {said.name!r} is not the worker in the path, {worker!r}")
    info = said.owner_info or {}
    return _bounded(
        Message(
            # Without an instance: `startTime` is that of a round or of a reporting period.
            phase=said.kind,
            status=said.status or "running",
            counts=_sedna_counts(info),
            numbers={**_sedna_numbers(info), **_sedna_metrics(said.results)},
            details=_sedna_details(info, said.results),
        )
    )


def _sedna_counts(info: Mapping[str, Any]) -> dict[str, int]:
    return {
        name: _count(field, info[field])
        for field, names in _SEDNA_COUNTS.items()
        if field in info
        for name in names
    }


def _sedna_numbers(info: Mapping[str, Any]) -> dict[str, Number]:
    """Whole numbers that are no totals: the round of a trainer and its samples."""
    return {
        name: value
        for name, value in info.items()
        if name not in _SEDNA_COUNTS and isinstance(value, int) and _is_exact(value)
    }


def _sedna_metrics(results: list[Any] | None) -> dict[str, Number]:
    """What the estimator's training returned, which for a history are lists: their last entry."""
    first = results[0] if results else None
    metrics = first.get("metrics") if isinstance(first, dict) else None
    if not isinstance(metrics, dict):
        return {}
    newest = {
        name: value[-1] if isinstance(value, list) and value else value
        for name, value in metrics.items()
    }
    return {f"metrics.{name}": value for name, value in newest.items() if _is_exact(value)}


def _sedna_details(info: Mapping[str, Any], results: list[Any] | None) -> dict[str, str]:
    known = {*_SEDNA_COUNTS, *_sedna_numbers(info)}
    details = {name: _text(value) for name, value in info.items() if name not in known}
    if results:
        details["results"] = _text(results)[:MAX_RESULTS_CHARS]
    return details


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _is_exact(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and -MAX_EXACT <= value <= MAX_EXACT


def _count(name: str, value: Any) -> int:
    if _is_exact(value) and value % 1 == 0 and value >= 0:
        return int(value)
    raise InvalidMessage(f"{name}: {value!r} is no count, a whole number of 0 or more")


def _decode(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidMessage(f"body: {error}") from error


def _bounded(message: Message) -> Message:
    """It must fit into one frame to the cloud, or the report could never leave the node."""
    size = len(wire.pack([message.phase, message.counts, message.numbers, message.details]))
    if size > MAX_REPORT_BYTES:
        raise InvalidMessage(f"body: {size} bytes of task info, limit {MAX_REPORT_BYTES}")
    return message
