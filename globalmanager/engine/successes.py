"""Words for the successful actions of one stage of a plan.

A job may have hundreds of pods, and an Event is as much work for the API server as a pod. So
objects of one type share a message that names a few of them.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from edgeai.api.resources import ObjectRef, ResourceType

# A name has at most 253 characters, and the message of an Event 1024.
_FIRST_NAMED: Final = 2


class Success(NamedTuple):
    """One successful action: what was done ("Created"), the object, and the end of the message."""

    what: str
    ref: ObjectRef
    detail: str = ""


def messages(successes: Iterable[Success]) -> Iterator[tuple[tuple[str, ResourceType], str]]:
    """One message for all objects of one type to which the same was done for the same reason.

    Returns: what was done and the type of the objects, and the message about it
    """
    groups: dict[tuple[str, ResourceType, str], list[ObjectRef]] = {}
    for what, ref, detail in successes:
        groups.setdefault((what, ref.type, detail), []).append(ref)
    for (what, type_, detail), refs in groups.items():
        yield (what, type_), f"{what.lower()} {_objects(type_, refs)}{detail}"


def _objects(type_: ResourceType, refs: list[ObjectRef]) -> str:
    """As "Pod a-0", or "110 pods: a-0, a-1, … a-109"."""
    names = [ref.name for ref in refs]
    if len(names) == 1:
        return f"{type_.kind} {names[0]}"
    first, last = names[:_FIRST_NAMED], names[_FIRST_NAMED:][-1:]
    gap = "… " if len(names) > _FIRST_NAMED + 1 else ""
    return f"{len(names)} {type_.plural}: " + ", ".join([*first, *(gap + name for name in last)])
