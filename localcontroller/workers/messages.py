"""Checks the bodies that workers send and turns each into a ProcessMessage. Pure.

There are two dialects: edgeai's WorkerMessage, and the body that Sedna's worker library posts.
Unknown fields are ignored. A field of a wrong type or range raises an InvalidMessage that names the
field. The message itself names its counts, so this module depends on no kind of worker.
"""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from common import wire
from edgeai.errors import EdgeAIError
from edgeai.text import printable
from localcontroller.ledger.attempts import MAX_COUNTS, Number, ProcessMessage

MAX_REPORT_BYTES: Final = 56 * 1024  # a report has 64 KiB at most, also with totals and reason
MAX_RESULTS_CHARS: Final = 1024  # for people; a training history may have any length
MAX_RESULTS: Final = 3  # models of one message
MAX_ITEMS: Final = 4  # of a metric that is a list
MAX_HEARTBEAT_S: Final = 3600
MAX_EXACT: Final = 2**53  # larger whole numbers lose digits in JSON

Name = Annotated[str, msgspec.Meta(max_length=253)]
CountName = Annotated[str, msgspec.Meta(max_length=63)]  # short: MAX_REPORT_BYTES excludes totals
Exact = Annotated[int, msgspec.Meta(ge=-MAX_EXACT, le=MAX_EXACT)]


class InvalidMessage(EdgeAIError):
    """The LocalController refuses this message of a worker, however often the worker sends it."""


class _Output(msgspec.Struct, frozen=True, rename="camel"):
    task_info: dict[Name, Exact | float | str] = {}
    counts: Annotated[list[CountName], msgspec.Meta(max_length=MAX_COUNTS)] | None = None
    """Names of the task_info fields that are totals since the process started.

    None: the worker's library is too old to send the list.
    """


class _EdgeaiBody(msgspec.Struct, frozen=True, rename="camel"):
    status: Literal["running", "completed", "failed"]
    phase: Name = ""
    instance: Name = ""
    sequence: Annotated[int, msgspec.Meta(ge=0, le=MAX_EXACT)] | None = None
    heartbeat_seconds: Annotated[float, msgspec.Meta(ge=0, le=MAX_HEARTBEAT_S)] = 0.0
    output: _Output = _Output()


class _SednaBody(msgspec.Struct, frozen=True, rename="camel"):
    """The body of Sedna's library.

    `ownerName` and `ownerKind` are not read: Sedna's library always sends "sedna" and "default".
    The secret in the URL identifies the task.
    """

    name: str
    kind: Name = ""
    status: Literal["", "running", "completed", "failed"] = ""
    owner_info: dict[str, Any] | None = None
    results: list[Any] | None = None


_PLACE: Final = re.compile(r"\.[1-9]\.")

_edgeai_decoder: Final = msgspec.json.Decoder(_EdgeaiBody)
_sedna_decoder: Final = msgspec.json.Decoder(_SednaBody)

# The counts of workers whose library is too old to send the list. All do joint inference.
_DEFAULT_COUNTS: Final = ("seen", "hard", "uploaded", "answeredByCloud", "fallbacks")
# Sedna uploads every hard example and nothing else, so one field gives two counts.
_SEDNA_COUNTS: Final = {
    "inferenceNumber": ("seen",),
    "hardExampleNumber": ("hard", "uploaded"),
}


def parse_edgeai_message(body: bytes) -> ProcessMessage:
    """Raises: InvalidMessage"""
    decoded = _decode(_edgeai_decoder, body)
    info = decoded.output.task_info
    counts = _DEFAULT_COUNTS if decoded.output.counts is None else decoded.output.counts
    return _check_size(
        ProcessMessage(
            instance=decoded.instance,
            sequence=decoded.sequence,
            phase=printable(decoded.phase),
            status=decoded.status,
            heartbeat_s=decoded.heartbeat_seconds,
            counts={name: _count(name, info[name]) for name in counts if name in info},
            numbers={
                name: value
                for name, value in info.items()
                if name not in counts and not isinstance(value, str)
            },
            details={
                printable(name): printable(value)
                for name, value in info.items()
                if name not in counts and isinstance(value, str)
            },
        )
    )


def parse_sedna_message(body: bytes, *, worker: str) -> ProcessMessage:
    """Args: worker: the worker name in the URL's path. Raises: InvalidMessage"""
    # Python writes a metric that is no number so. It counts as missing.
    is_python = b"NaN" in body or b"Infinity" in body
    decoded = _decode_python(body) if is_python else _decode(_sedna_decoder, body)
    if decoded.name != worker:
        raise InvalidMessage(f"name: {decoded.name!r} is not the worker in the path, {worker!r}")
    info = decoded.owner_info or {}
    return _check_size(
        ProcessMessage(
            # No instance: `startTime` changes with each round or period, and not with the process.
            phase=printable(decoded.kind),
            status=decoded.status or "running",
            counts=_sedna_counts(info),
            numbers={
                **_sedna_numbers(info),
                **_sedna_metrics(decoded.results, is_evaluation=decoded.kind == "eval"),
            },
            details=_sedna_details(info, decoded.results),
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
    """Whole numbers that are not totals, such as a trainer's round and its number of samples."""
    return {
        name: value
        for name, value in info.items()
        if name not in _SEDNA_COUNTS and isinstance(value, int) and _is_exact(value)
    }


def _sedna_metrics(results: list[Any] | None, *, is_evaluation: bool) -> dict[str, Number]:
    """The estimator's metrics of each model: metrics.NAME, metrics.1.NAME of the second.

    A training history has a list for each metric; its last entry is the newest value. In an
    evaluation each entry of a list counts, as NAME[0].
    """
    numbers: dict[str, Number] = {}
    items: dict[str, Number] = {}
    for index, result in enumerate(_results(results)):
        metrics = result.get("metrics")
        prefix = f"metrics.{index}." if index else "metrics."
        for name, value in metrics.items() if isinstance(metrics, dict) else ():
            values = value if isinstance(value, list) else [value]
            numbers |= {f"{prefix}{name}": each for each in values[-1:] if _is_exact(each)}
            for number, each in enumerate(values[:MAX_ITEMS] if is_evaluation else ()):
                if isinstance(value, list) and _is_exact(each):
                    items[f"{prefix}{name}[{number}]"] = each
    # A status keeps the first ones: the values of all models come before items of lists, and an
    # item of each model beside the same of the others.
    items = dict(sorted(items.items(), key=lambda item: _PLACE.sub(".", item[0])))
    return {**numbers, **items}


def _results(results: list[Any] | None) -> list[dict[str, Any]]:
    """One for each model that a training has saved, or an evaluation has compared."""
    return [one if isinstance(one, dict) else {} for one in (results or [])[:MAX_RESULTS]]


def _sedna_details(info: Mapping[str, Any], results: list[Any] | None) -> dict[str, str]:
    names = {*_SEDNA_COUNTS, *_sedna_numbers(info)}
    details = {printable(name): _text(value) for name, value in info.items() if name not in names}
    for index, result in enumerate(_results(results)):
        fields = {name: result.get(name) for name in ("url", "format")}
        texts = {name: text for name, text in fields.items() if isinstance(text, str)}
        details |= {f"results.{index}.{name}": printable(text) for name, text in texts.items()}
    if results:
        details["results"] = _text(results)[:MAX_RESULTS_CHARS]
    return details


def _text(value: Any) -> str:
    return printable(value if isinstance(value, str) else msgspec.json.encode(value).decode())


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


def _decode_python(body: bytes) -> _SednaBody:
    try:
        return msgspec.convert(json.loads(body), _SednaBody)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage(f"body: {error}") from error


def _check_size(message: ProcessMessage) -> ProcessMessage:
    """Raises: InvalidMessage for a message whose report would not fit into one frame."""
    size = len(wire.pack([message.phase, message.counts, message.numbers, message.details]))
    if size > MAX_REPORT_BYTES:
        raise InvalidMessage(f"body: {size} bytes of task info, limit {MAX_REPORT_BYTES}")
    return message
