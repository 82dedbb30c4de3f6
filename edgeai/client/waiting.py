"""Waits until one object is as somebody wants it, and no longer than that one object lives."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from edgeai.api.resources import Object, ObjectRef
from edgeai.api.status import condition_of
from edgeai.client.changes import follow
from edgeai.client.errors import InvalidObject, ObjectGone, WaitTimeout
from edgeai.client.state import state_of
from edgeai.kube import errors
from edgeai.kube.client import KubeClient

DELETED: Final = "deleted"
END: Final = "ended"

Check = Callable[[Object], bool]


def check_of(condition: str) -> Check | None:
    """The check of "TYPE" (the condition is True), "TYPE=STATUS", or "ended" (it has a result);
    None for "deleted". Raises: InvalidObject
    """
    if condition == DELETED:
        return None
    if condition == END:
        return lambda object_: bool(state_of(object_).result)
    type_, has_status, truth = condition.partition("=")
    if not type_.isalnum() or (has_status and truth not in ("True", "False", "Unknown")):
        remedy = 'write TYPE, TYPE=True, TYPE=False or TYPE=Unknown, "ended" or "deleted"'
        raise InvalidObject("wait", "condition", f"{condition!r} is none", remedy)
    status = truth or "True"
    return lambda object_: condition_of(object_, type_).get("status") == status


async def wait_for(
    kube: KubeClient,
    ref: ObjectRef,
    event: str,
    check: Check | None,
    *,
    timeout_s: float,
    uid: str = "",
    on_change: Callable[[Object], None] = lambda _object: None,
) -> Object | None:
    """The object as soon as `check` says so; None when it is gone and `check` wants that.

    Args:
        event: for errors: "condition Running"
        check: None: wait until the object is gone
        uid: of the object to wait for; "" for the one that has the name now
        on_change: called with each state of the object, the first one too
    Raises: WaitTimeout, ObjectGone, ApiError
    """
    last: Object = {}
    try:
        async with asyncio.timeout(timeout_s):
            last = await _first(kube, ref, uid)
            async with aclosing(follow(kube, ref, objects=[last])) as changes:
                while True:
                    on_change(last)
                    if check is not None and check(last):
                        return last
                    change = await anext(changes)
                    last = change.object
                    if change.type == "DELETED":  # before an object that has taken its name
                        raise ObjectGone(ref, last["metadata"]["uid"], is_replaced=False)
    except (ObjectGone, errors.NotFound):
        if check is None:
            return None
        raise
    except TimeoutError as error:
        waits_for = "; ".join(state_of(last).waits_for) if last else "the API does not answer"
        raise WaitTimeout(ref, event, timeout_s, waits_for) from error


async def _first(kube: KubeClient, ref: ObjectRef, uid: str) -> Object:
    """The object as it is now. Raises: ObjectGone when the object with `uid` is gone; ApiError"""
    try:
        object_ = await kube.get(ref)
    except errors.NotFound as error:
        if not uid:
            raise
        raise ObjectGone(ref, uid, is_replaced=False) from error
    if uid and object_["metadata"]["uid"] != uid:
        raise ObjectGone(ref, uid, is_replaced=True)
    return object_
