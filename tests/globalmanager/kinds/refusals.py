"""Carries plans out as the engine does, while somebody refuses some of the actions."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from edgeai.api.objects import is_being_deleted
from globalmanager.contract import Action, Adopt, Create, Refusal
from tests.support.world import at, merged

Refuse = Callable[[Action], Refusal | None]


def creation_of(kind: str, *names: str, reason: str = "Forbidden") -> Refuse:
    """Refuses to create objects of this kind; without names all of them."""

    def refuse(action: Action) -> Refusal | None:
        if not isinstance(action, Create) or action.type.kind != kind:
            return None
        name = action.object["metadata"]["name"]
        return Refusal(reason, f"{kind} {name}: refused") if not names or name in names else None

    return refuse


def adoption(action: Action) -> Refusal | None:
    return Refusal("Invalid", "scaler: refused") if isinstance(action, Adopt) else None


def carry(world: Any, now: datetime, refuse: Refuse) -> None:
    """Carry one plan out. All actions of a stage are tried. After a refused one, the later stages,
    the status and the events are left out, and the status of a plan that knows the refusal is
    written (engine/apply.py and the engine's loop).
    """
    plan = world.plan(now)
    for stage in plan.stages:
        refusals = [refusal for action in stage if (refusal := _try(world, action, refuse))]
        if refusals:
            world.refusal = refusals[0]
            told = world.plan(now).status
            world.refusal = None
            world.object = {**world.object, "status": merged(world.status, told or {})}
            return
    world.object = {**world.object, "status": merged(world.status, plan.status or {})}


def _try(world: Any, action: Action, refuse: Refuse) -> Refusal | None:
    if (refusal := refuse(action)) is None:
        world._act(action)
    return refusal


def live(world: Any, refuse: Refuse, start_s: int, end_s: int) -> None:
    """Plan every few seconds; pods that are being deleted end at once."""
    for second in range(start_s, end_s, 5):
        for _ in range(5):
            carry(world, at(second), refuse)
        for ref, child in list(world.children.items()):
            if is_being_deleted(child):
                del world.children[ref]
