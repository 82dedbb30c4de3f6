"""Every reason of a condition that is not good has a sentence that says what to do."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.faults.faults import STALLED
from edgeai.faults.remedies import REMEDIES, UNKNOWN, Cause, cause_of, is_good, remedy_of
from globalmanager.kinds.shared.job_conditions import ENDS

ROOT: Final = Path(__file__).parents[3]
RECORDED: Final = ROOT / "tests" / "golden" / "recorded"
# Function that makes a reason -> the number of the argument that is the reason.
MAKERS: Final = {
    "Finding": 2,
    "Missing": 0,
    "Stall": 0,
    "Refusal": 0,
    "SourceError": 0,
    "job_fault": 0,
}
_REASON: Final = re.compile(r"[A-Z][A-Za-z]+")


def told() -> Iterator[dict[str, Any]]:
    """Every condition that the kinds decide in the golden cases."""
    todo: list[Any] = [json.loads(file.read_text()) for file in sorted(RECORDED.glob("*.json"))]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if {"type", "status", "reason", "message"} <= one.keys():
                yield one
            todo += one.values()
        elif isinstance(one, list):
            todo += one


def in_code() -> Iterator[tuple[str, str]]:
    """(reason, file) of each call in the code that makes one, and of each constant for one."""
    for folder in ("edgeai/faults", "globalmanager/kinds", "globalmanager/engine"):
        yield from _in_folder(ROOT / folder)
    yield from _in_folder(ROOT / "localcontroller" / "hooks")


def _in_folder(folder: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(folder.rglob("*.py")):
        tree = ast.parse(file.read_text())
        texts = {name: text for node in tree.body for name, text in _constant(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                reason = _reason_of(node, texts)
                if reason and _REASON.fullmatch(reason):
                    yield reason, str(file.relative_to(ROOT))
        for name, text in texts.items():
            if name.strip("_") in ("NAME_CONFLICT", "LAUNCHER_MISSING", "WORKERS_MISSING"):
                yield text, str(file.relative_to(ROOT))


def _constant(node: ast.stmt) -> Iterator[tuple[str, str]]:
    match node:
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str(text))):
            yield name, text


def _reason_of(call: ast.Call, texts: dict[str, str]) -> str:
    name = getattr(call.func, "id", getattr(call.func, "attr", ""))
    number = MAKERS.get(name)
    if number is None or len(call.args) <= number:
        return ""
    if name == "Finding" and getattr(call.args[1], "attr", "") == "TRUE":
        return ""  # the conditions that are bad when they are true come from the other tests
    argument = call.args[number]
    if isinstance(argument, ast.Constant):
        return str(argument.value)
    return texts.get(getattr(argument, "id", ""), "")


def is_known(reason: str, message: str = "") -> bool:
    return remedy_of(reason, message) not in ("", UNKNOWN)


def test_every_reason_of_a_bad_condition_in_the_golden_cases_has_a_remedy() -> None:
    bad = {(one["reason"], one["message"]) for one in told() if not is_good(one)}
    assert len({reason for reason, _ in bad}) > 10
    assert [each for each in sorted(bad) if not is_known(*each)] == []


def test_every_reason_that_the_code_names_has_a_remedy_or_is_of_the_normal_course() -> None:
    found = set(in_code())
    assert len(found) > 25
    unknown = [(reason, file) for reason, file in found if remedy_of(reason) == UNKNOWN]
    assert unknown == []


def test_a_good_condition_has_no_remedy() -> None:
    for one in told():
        if is_good(one) and one["status"] == "True" and one["type"] not in ("Suspended", *ENDS):
            assert remedy_of(one["reason"], one["message"]) == "", one


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("ViolatesRestricted", "Pod Security"),
        ("PyTorchJobFailed", "edgeai logs"),
        ("TFJobFailedValidation", "correct the field"),
        ("ScaleOutFailed", "another scaler"),
        ("TrainingJobRestarting", "by itself"),
        ("TrainingJobSuspended", "resume"),
    ],
)
def test_reasons_with_the_name_of_a_kind_or_a_level_are_known(reason: str, words: str) -> None:
    assert words in remedy_of(reason)


def test_a_silent_node_is_no_normal_course_although_its_reason_ends_with_ready() -> None:
    assert "kubelet" in remedy_of("NodeNotReady")
    assert cause_of("NodeNotReady") is Cause.NODE
    assert remedy_of("TFJobReady") == ""


def test_one_reason_with_two_meanings_is_told_apart_by_its_message() -> None:
    assert "quota" in remedy_of("Forbidden", 'create pods: pods "a" is forbidden')
    assert "read the data" in remedy_of("Forbidden", "spec.url: /data may not be read")


def test_a_reason_of_a_later_kubernetes_has_a_remedy_too() -> None:
    assert remedy_of("SomethingNew") == UNKNOWN
    assert remedy_of("") == ""


@pytest.mark.parametrize(
    ("type_", "truth", "reason", "good"),
    [
        ("Accepted", "True", "Valid", True),
        ("Accepted", "False", "InvalidSpec", False),
        ("ResolvedRefs", "Unknown", "InvalidSpec", False),
        ("Running", "False", "Starting", True),
        ("Running", "False", "ImagePullBackOff", False),
        ("Running", "Unknown", "NodeNotReady", False),
        ("Running", "False", "PyTorchJobSuspended", True),
        (STALLED, "True", "Pending", False),
        (STALLED, "False", "Pending", True),
        ("CloudReachable", "False", "NoAnswer", False),
        ("Scaling", "False", "TrainingJobScaled", True),
        ("Failed", "True", "PyTorchJobFailed", False),
        ("Succeeded", "True", "PyTorchJobSucceeded", True),
        ("SomethingOfOthers", "False", "Whatever", True),
    ],
)
def test_which_conditions_are_good(type_: str, truth: str, reason: str, good: bool) -> None:
    assert is_good({"type": type_, "status": truth, "reason": reason}) is good


@pytest.mark.parametrize("odd", [{}, {"type": None, "status": 1, "reason": {}}, {"type": "Failed"}])
def test_a_condition_of_any_form_is_judged(odd: dict[str, Any]) -> None:
    assert is_good(odd) in (True, False)


def test_the_sentences_are_imperatives_without_an_end() -> None:
    for reason, sentence in REMEDIES.items():
        assert _REASON.fullmatch(reason), reason
        assert sentence[0].islower(), sentence
        assert not sentence.endswith("."), sentence
