"""What a person can do to a job on its page, and ask about it, with the person's own rights.

Each action becomes one request to the Kubernetes API that shows the caller's token. So the API
server decides, and its audit log names the person.
"""

import contextlib
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from edgeai.api import actions
from edgeai.api.definitions import Definition
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.status import mapping
from edgeai.api.training import MAX_REPLICAS
from edgeai.errors import Overloaded
from edgeai.faults.summary import phase_of
from edgeai.ids import Uid
from edgeai.kube.client import Beginning, KubeClient
from edgeai.kube.errors import ApiError, TooLarge
from globalmanager.engine.events import EVENTS
from globalmanager.rest.errors import RequestError

ROLLOUT: Final = {f"{action}-rollout": action for action in actions.ROLLOUT}
"""Action -> action of `edgeai.api.actions.roll`."""
VERBS: Final = {
    **dict.fromkeys(("suspend", "resume", "scale", *ROLLOUT), "patch"),
    "delete": "delete",
}
MESSAGES: Final = {
    "suspend": "Suspended: the pods of the job end.",
    "resume": "Resumed: the pods of the job start again.",
    "scale": "Scaled: the job has its new number of workers as soon as their pods run.",
    "pause-rollout": "Paused: no further wave begins.",
    "resume-rollout": "Resumed: the rollout goes on.",
    "promote-rollout": "Promoted: the next wave begins.",
    "rollback-rollout": "Taken back: every node returns to the version before.",
    "delete": "Deleted, with all that belongs to it.",
}
"""Action -> what the next page says."""
_ANSWERS: Final = (401, 403, 404, 409)


class CallersApi:
    """Requests with a caller's token. All raise RequestError.

    Args: client: a client for callers, without credentials of its own
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def patch(self, token: str, ref: ObjectRef, patch: Mapping[str, Any]) -> None:
        with _told():
            await self._client.bearing(token).merge_patch(ref, patch, is_strict=True)

    async def delete(self, token: str, ref: ObjectRef, uid: Uid) -> None:
        with _told():
            await self._client.bearing(token).delete(ref, uid=uid)

    async def events(self, token: str, namespace: str, uid: Uid, limit: int) -> Beginning:
        """At most `limit` Events about the object."""
        escaped_uid = re.sub(r"([\\,=])", r"\\\1", uid)
        selector = f"involvedObject.uid={escaped_uid}"
        with _told():
            return await self._client.bearing(token).beginning(
                EVENTS, namespace=namespace, field_selector=selector, limit=limit
            )

    async def log_lines(
        self, token: str, pod: ObjectRef, *, container: str, tail: int, is_previous: bool
    ) -> AsyncGenerator[bytes, None]:
        """The newest lines of a container's log with their times, then those that come."""
        client = self._client.bearing(token)
        lines = client.log_lines(
            pod, container=container, follow=not is_previous, tail=tail, is_previous=is_previous
        )
        with _told():
            async with contextlib.aclosing(lines):
                async for line in lines:
                    yield line


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Tell a failure as the answer to the person. Raises: RequestError"""
    try:
        yield
    except TooLarge as error:
        raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error)) from error
    except ApiError as error:
        is_answer = error.code in _ANSWERS
        status = HTTPStatus(error.code) if is_answer else HTTPStatus.BAD_GATEWAY
        raise RequestError(status, str(error)) from error
    except Overloaded as error:
        raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, str(error)) from error


class Choices(NamedTuple):
    """What the page of a job offers, as far as its kind has it."""

    forms: dict[str, bool]
    """Action that its kind has -> whether the present state of the job allows it."""
    replicas: int | None
    """None: the size of this job cannot be set."""


def choices_of(definition: Definition, object_: Object) -> Choices:
    has_ended = phase_of(object_.get("status")) in ("Succeeded", "Failed")
    replicas, present = actions.replicas_of(definition, object_), _present_size(object_)
    forms: dict[str, bool] = {}
    if definition.suspensions and not has_ended:
        is_suspended = actions.is_suspended(definition, object_)
        forms = {"suspend": not is_suspended, "resume": is_suspended}
    rollout = mapping(object_.get("spec")).get("rollout")
    if isinstance(rollout, dict):
        present_form = "pause-rollout" if rollout.get("paused") else "resume-rollout"
        forms |= {
            form: form != present_form and _rolls(each, object_) for form, each in ROLLOUT.items()
        }
    return Choices(forms, replicas if present is None or replicas is None else present)


def _rolls(action: str, object_: Object) -> bool:
    try:
        actions.roll(action, object_, "")
    except actions.NotPossible:
        return False
    return True


def _present_size(object_: Object) -> int | None:
    """The number of workers that scalers have made of the number in the spec."""
    target = mapping(object_.get("status")).get("targetWorkers")
    return len(target) if isinstance(target, list) else None


def check_size(definition: Definition, object_: Object, form: Mapping[str, Any]) -> None:
    """Raises: RequestError for a number that the spec has, so to write it would change nothing"""
    number, present = _replicas(str(form.get("replicas", ""))), _present_size(object_)
    if present is not None and number == actions.replicas_of(definition, object_) != present:
        problem = f"the spec says {number} already, and scalers have made {present} of it"
        remedy = "create a ScaleIn or a ScaleOut, or scale to another number first"
        raise RequestError(HTTPStatus.CONFLICT, f"nothing was changed: {problem}; {remedy}")


def patch_of(
    action: str, definition: Definition, job: Object, uid: Uid, form: Mapping[str, Any]
) -> Object:
    """The merge patch of an action. It holds for the object with this uid alone.

    Raises: RequestError for an action that a job of the kind does not have, or a wrong field
    """
    try:
        match action:
            case "suspend":
                return actions.suspend(definition, uid)
            case "resume":
                return actions.resume(definition, uid)
            case "scale":
                return actions.scale(definition, uid, _replicas(str(form.get("replicas", ""))))
        if action in ROLLOUT:
            return actions.roll(ROLLOUT[action], job, uid)
    except actions.NotPossible as error:
        raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from error
    raise RequestError(HTTPStatus.BAD_REQUEST, f"a {definition.name} has no action {action}")


def _replicas(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 7):
        problem = f"replicas: {text[:20]!r} is not a number from 0 to {MAX_REPLICAS}"
        raise RequestError(HTTPStatus.BAD_REQUEST, problem)
    return int(text)
