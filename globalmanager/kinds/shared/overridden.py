"""Condition Overridden: somebody else sets fields of a child again after each correction.

Pure. The engine counts corrections, and says which children are (Observed.overridden).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from edgeai.api.resources import ObjectRef, ref_of
from edgeai.api.status import Finding, Truth
from edgeai.text import listing
from globalmanager.contract import Observed, Replace
from globalmanager.kinds.shared import status
from globalmanager.kinds.shared.children import Stages

OVERRIDDEN: Final = "Overridden"
# The message of a condition has 1024 characters, and the remedy is at its end.
_MAX_CHILDREN_NAMED: Final = 2
_MAX_FIELDS_NAMED: Final = 2
_MAX_FIELD_CHARS: Final = 80


def finding(observed: Observed, stages: Stages) -> Finding | None:
    """The condition, as long as such children differ from what the job wants, or None.

    Args: stages: of the plan. The plan still names each correction that the engine leaves out
    """
    # The engine leaves out a correction that somebody undoes each time. The plan still has it, so
    # the condition ends as soon as the child is as the job wants it.
    drifted = [
        ref_of(action.type, action.object)
        for stage in stages
        for action in stage
        if isinstance(action, Replace) and action.is_drift
    ]
    contested = [ref for ref in drifted if ref in observed.overridden]
    if contested:
        message = describe({ref: observed.overridden[ref] for ref in contested})
        return Finding(OVERRIDDEN, Truth.TRUE, "SetByOthers", message)
    previous = status.condition(observed, OVERRIDDEN)
    if drifted and previous.get("status") == Truth.TRUE:
        # This GlobalManager has just started and does not know yet who is overridden.
        words = str(previous.get("reason", "")), str(previous.get("message", ""))
        return Finding(OVERRIDDEN, Truth.TRUE, *words)
    return None


def describe(children: Mapping[ObjectRef, Sequence[str]]) -> str:
    """What is overridden and what a user can do. Args: children: child -> paths of its fields"""
    texts = [
        f"{ref.type.kind} {ref.name} "
        f"({listing([field[:_MAX_FIELD_CHARS] for field in fields], _MAX_FIELDS_NAMED)})"
        for ref, fields in list(children.items())[:_MAX_CHILDREN_NAMED]
    ]
    more = len(children) - len(texts)
    return (
        f"left as it is: {', '.join(texts)}{f' and {more} more children' if more else ''}; the API "
        "server, an admission webhook or another controller sets this again after each correction: "
        "find out who does so (managedFields in kubectl get -o yaml), or change the job"
    )
