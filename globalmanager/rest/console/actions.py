"""What a person can do to a job on its page, and ask about it, with the person's own rights.

Each action becomes one request to the Kubernetes API that shows the caller's token. So the API
server decides, and its audit log names the person.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol

from edgeai.api.resources import Object, ObjectRef
from edgeai.errors import Overloaded
from edgeai.faults.summary import phase_of
from edgeai.ids import Uid
from edgeai.kube.client import Beginning, KubeClient
from edgeai.kube.errors import ApiError, TooLarge
from globalmanager.contract import Kind
from globalmanager.engine.events import EVENTS
from globalmanager.rest.errors import RequestError

MAX_REPLICAS: Final = 10_000
VERBS: Final = {"suspend": "patch", "resume": "patch", "scale": "patch", "delete": "delete"}
_ANSWERS: Final = (
    *(HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN),
    *(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
)


class CallersApi(Protocol):
    """Requests with a caller's token. All raise RequestError."""

    async def patch(self, token: str, ref: ObjectRef, patch: Mapping[str, Any]) -> None: ...

    async def delete(self, token: str, ref: ObjectRef, uid: Uid) -> None: ...

    async def events(self, token: str, namespace: str, uid: Uid, limit: int) -> Beginning:
        """At most `limit` Events about the object."""


class KubeCallersApi:
    """Args: client: a client for callers, without credentials of its own"""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def patch(self, token: str, ref: ObjectRef, patch: Mapping[str, Any]) -> None:
        with _told():
            await self._client.bearing(token).merge_patch(ref, patch, is_strict=True)

    async def delete(self, token: str, ref: ObjectRef, uid: Uid) -> None:
        with _told():
            await self._client.bearing(token).delete(ref, uid=uid)

    async def events(self, token: str, namespace: str, uid: Uid, limit: int) -> Beginning:
        selector = f"involvedObject.uid={_escaped(uid)}"
        with _told():
            return await self._client.bearing(token).beginning(
                EVENTS, namespace=namespace, field_selector=selector, limit=limit
            )


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


def _escaped(value: str) -> str:
    """A value of a field selector."""
    return re.sub(r"([\\,=])", r"\\\1", value)


class Choices(NamedTuple):
    """What the page of a job offers, as far as its kind has it."""

    is_suspended: bool | None
    """None: the job has ended, or its kind cannot be suspended."""
    replicas: int | None
    """None: the size of this job cannot be set."""


def choices_of(kind: Kind, object_: Object) -> Choices:
    path = _scaled_path(kind)
    replicas = _at(object_, path) if path else None
    has_ended = phase_of(object_.get("status")) in ("Succeeded", "Failed")
    is_suspended = any(_at(object_, field.path) == field.on for field in kind.suspensions)
    return Choices(
        is_suspended if kind.suspensions and not has_ended else None,
        replicas if isinstance(replicas, int) and not isinstance(replicas, bool) else None,
    )


def patch_of(action: str, kind: Kind, uid: Uid, form: Mapping[str, Any]) -> Mapping[str, Any]:
    """The merge patch of an action. It holds for the object with this uid alone.

    Raises: RequestError for an action that a job of the kind does not have, or a wrong field
    """
    fields: dict[tuple[str, ...], Any] = {}
    if action == "scale" and (path := _scaled_path(kind)):
        fields = {path: _replicas(str(form.get("replicas", "")))}
    elif action == "suspend":
        fields = {field.path: field.on for field in kind.suspensions[:1]}
    elif action == "resume":
        fields = {field.path: field.off for field in kind.suspensions}
    if not fields:
        raise RequestError(
            HTTPStatus.BAD_REQUEST, f"a {kind.definition.name} has no action {action}"
        )
    patch: dict[str, Any] = {"metadata": {"uid": uid}}
    for path, value in fields.items():
        part = patch
        for step in path[:-1]:
            part = part.setdefault(step, {})
        part[path[-1]] = value
    return patch


def check_name(form: Mapping[str, Any], name: str) -> None:
    """Raises: RequestError unless the caller has typed the name of the job"""
    if form.get("name") != name:
        problem = f"type the name of the job, {name}, to delete the job"
        raise RequestError(HTTPStatus.BAD_REQUEST, problem)


def _replicas(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 7 and int(text) <= MAX_REPLICAS):
        problem = f"replicas: {text[:20]!r} is not a number from 0 to {MAX_REPLICAS}"
        raise RequestError(HTTPStatus.BAD_REQUEST, problem)
    return int(text)


def _scaled_path(kind: Kind) -> tuple[str, ...]:
    scale = kind.scale
    return () if scale is None else tuple(scale.spec_replicas_path.removeprefix(".").split("."))


def _at(object_: Object, path: tuple[str, ...]) -> Any:
    value: Any = object_
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value
