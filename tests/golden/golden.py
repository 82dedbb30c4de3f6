"""Records a case as text and compares it with what was recorded before."""

import difflib
import json
from pathlib import Path
from typing import Final

import msgspec

from globalmanager.contract import Action, Adopt, Create, Delete, Patch, PatchStatus, Replace
from tests.golden import moments
from tests.golden.cases import Case
from tests.golden.world import CaseWorld, Json, identity, named

RECORDED: Final = Path(__file__).parent / "recorded"
_MAX_LINES: Final = 120
_REMEDY: Final = (
    "If this is meant: run `python -m tests.golden` and explain the difference "
    "in the body of the commit message."
)


def path_of(case: Case) -> Path:
    return RECORDED / f"{case.name}.json"


def write(case: Case) -> bool:
    """Whether the file is another than before."""
    path, text = path_of(case), record(case)
    if path.exists() and path.read_text() == text:
        return False
    RECORDED.mkdir(exist_ok=True)
    path.write_text(text)
    return True


def difference(case: Case) -> str:
    """What is not as recorded, as a diff for people; "" when every byte is the same."""
    path = path_of(case)
    before = path.read_text() if path.exists() else ""
    after = record(case)
    if before == after:
        return ""
    diff = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"recorded/{path.name}", "now", lineterm="", n=6
    )
    lines = list(diff)
    more = [f"… {len(lines) - _MAX_LINES} lines more"] if len(lines) > _MAX_LINES else []
    return "\n".join([f"{case.name}: {case.about}", *lines[:_MAX_LINES], *more, _REMEDY])


def record(case: Case) -> str:
    """Canonical JSON: keys in order, one entry a line, the same in every run."""
    jobs = [_life(case, world) for world in moments.worlds(case)]
    assert jobs, f"{case.name} has no job"
    content = {"about": case.about, "jobs": jobs}
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _life(case: Case, world: CaseWorld) -> dict[str, Json]:
    seen: dict[str, str] = {}
    recorded = []
    for moment, at_that_moment in moments.life(case, world):
        recorded.append({"moment": moment, **_shortened(_decided(at_that_moment), moment, seen)})
    return {
        "job": " ".join(identity(world.object)),
        "references": sorted(map(named, world.references()), key=identity),
        "moments": recorded,
        "reports": moments.folds(case, world),
    }


def _decided(world: CaseWorld) -> dict[str, Json]:
    plan, assignments = world.planned(), world.kind.assignments(world.observed())
    return {
        "actions": [_action(action) for action in plan.actions],
        "status": plan.status,
        "events": [
            {"type": each.severity.value, "reason": each.reason, "message": each.message}
            for each in plan.events
        ],
        "requeueAfterSeconds": plan.requeue_after_s,
        "assignments": {
            node: {
                "key": each.key,
                "uid": each.uid,
                "version": each.version,
                "body": msgspec.to_builtins(each.body),
            }
            for node, each in assignments.items()
        },
    }


def _action(action: Action) -> dict[str, Json]:
    match action:
        case Create(object=object_):
            return {"create": object_}
        case Replace(object=object_):
            return {"replace": object_}
        case Delete(ref=ref, uid=uid):
            return {"delete": {**named(ref), "uid": uid}}
        case Adopt(ref=ref, uid=uid):
            return {"adopt": {**named(ref), "uid": uid}}
        case Patch(ref=ref, patch=patch):
            return {"patch": {**named(ref), "patch": patch}}
        case PatchStatus(ref=ref, uid=uid, status=status):
            return {"patchStatus": {**named(ref), "uid": uid, "status": status}}


def _shortened(entry: dict[str, Json], moment: str, seen: dict[str, str]) -> dict[str, Json]:
    """What was recorded at an earlier moment of the job is named, not repeated."""
    short = {}
    for name, value in entry.items():
        if value in (None, [], {}):
            continue
        key = name + json.dumps(value, sort_keys=True)
        first = seen.setdefault(key, moment)
        short[name] = value if first == moment else f"as when {first}"
    return short
