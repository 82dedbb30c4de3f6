"""Applies the documents of a file, and waits until all of them have a result."""

import asyncio
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from edgeai.api.resources import Object
from edgeai.client.asynchronous import AsyncClient
from edgeai.client.errors import InvalidObject, ObjectGone, WaitTimeout
from edgeai.client.objects import AnyResource
from edgeai.client.state import State, state_of
from edgeai.client.waiting import END, check_of, wait_for
from edgeai.client.words import DATA, check_document, resource, type_of_document
from edgeai.faults.faults import summary
from edgeai.kube import errors

MAX_FILE_BYTES: Final = 10 * 1024 * 1024
MAX_SHOWN_CHARS: Final = 80
SUCCEEDED: Final = 0
FAILED: Final = 1
DEADLINE: Final = 2
Tell = Callable[[str], None]


class Loader(yaml.SafeLoader):
    """Reads `20:00` as a text, as kubectl does. In YAML 1.1 it is a number to the base of 60."""


_CLOCK: Final = ("tag:yaml.org,2002:str", re.compile(r"[0-9]+(:[0-5]?[0-9])+\Z"))
Loader.yaml_implicit_resolvers = {
    first: [_CLOCK, *resolvers] if first.isdigit() else resolvers
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class Submitted(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    kind: str
    namespace: str
    name: str
    uid: str
    phase: str
    result: str
    waits_for: tuple[str, ...]


def read_documents(file: Path, namespace: str = "") -> list[Object]:
    """The objects of a YAML file, or for "-" of the standard input. All are checked first.

    Args: namespace: the user's wish; an object may name no other one. "": any
    Raises: InvalidObject, UnknownKind, which name the document and the field
    """
    try:
        text = sys.stdin.read(MAX_FILE_BYTES) if str(file) == "-" else _text_of(file)
        loaded = [document for document in yaml.load_all(text, Loader) if document is not None]
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "")
        problem = f"cannot be read: {why}" if why else "is not UTF-8 text"
        raise InvalidObject(f"file {file}", "the whole", problem, "name a YAML file") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        problem = f"is not valid YAML ({' '.join(str(error).split())[:300]})"
        raise InvalidObject(f"file {file}", "the whole", problem, "correct it") from error
    if not loaded:
        raise InvalidObject(f"file {file}", "the whole", "has no document", "write one")
    documents = [check_document(one, f"document {n} of {file}") for n, one in enumerate(loaded, 1)]
    for number, document in enumerate(documents, 1):
        own = document["metadata"].get("namespace") or namespace
        if namespace and own != namespace:
            problem = f"is {str(own)[:MAX_SHOWN_CHARS]!r}, but -n is {namespace!r}"
            place = f"document {number} of {file}"
            raise InvalidObject(place, "metadata.namespace", problem, "leave out one of the two")
    return documents


def _text_of(file: Path) -> str:
    with file.open("rb") as opened:
        content = opened.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise InvalidObject(
            f"file {file}", "the whole", f"is larger than {MAX_FILE_BYTES} bytes", "split it"
        )
    return content.decode()


async def submit(
    client: AsyncClient, documents: Iterable[Object], tell: Tell, *, is_forced: bool = False
) -> list[AnyResource]:
    """Apply the documents in their order.

    Returns: those of edgeai's kinds, which may be waited for
    Args: is_forced: take over the fields that somebody else has set to other values
    Raises: ApiError of the first document that is refused
    """
    objects = []
    for document in documents:
        try:
            applied = await client.apply_document(document, is_forced=is_forced)
        except errors.Conflict as error:  # somebody else, as `kubectl apply`, manages a field
            raise errors.Conflict(
                *(error.verb, error.target),
                code=error.code,
                reason=error.reason,
                message=" ".join(error.message.split()),
                remedy="leave these fields out of the file, or take them over with --force",
            ) from error
        if type_of_document(applied) in DATA:
            metadata = applied["metadata"]
            tell(f"{applied['kind']} {metadata['namespace']}/{metadata['name']}: applied")
            continue
        one = resource(applied)
        tell(f"{one}: applied")
        objects.append(one)
    return objects


async def wait_for_all(
    client: AsyncClient, objects: list[AnyResource], timeout_s: float, tell: Tell
) -> tuple[int, list[Submitted]]:
    """The exit code, and how each object is in the end. The first failure ends the wait.

    Args: tell: called with a line for each change of a phase or of what an object waits for
    """
    states = {object_.ref: state_of(object_.object) for object_ in objects}
    waits = [
        asyncio.create_task(_wait(client, object_, timeout_s, states, tell)) for object_ in objects
    ]
    codes: list[int] = []
    try:
        for wait in asyncio.as_completed(waits):
            codes.append(await wait)
            if codes[-1] == FAILED:
                break
    finally:
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    code = FAILED if FAILED in codes else max(codes, default=SUCCEEDED)
    return code, [submitted(object_, states[object_.ref]) for object_ in objects]


async def _wait(
    client: AsyncClient, one: AnyResource, timeout_s: float, states: dict[Any, State], tell: Tell
) -> int:
    def changed(object_: Object) -> None:
        state = state_of(object_)
        if state.result or state != states[one.ref]:  # what has a result ends the wait
            tell(_line(one, state))
        states[one.ref] = state

    try:
        await wait_for(
            *(client.kube, one.ref, "a result", check_of(END)),
            timeout_s=timeout_s,
            uid=one.uid,
            on_change=changed,
        )
    except WaitTimeout as error:
        tell(str(error))
        return DEADLINE
    except ObjectGone as error:
        tell(str(error))
        return FAILED
    return SUCCEEDED if states[one.ref].result == "succeeded" else FAILED


def _line(one: AnyResource, state: State) -> str:
    waits = summary(state.faults)
    word = state.result or (state.phase if state.phase != "-" else "waits")
    return f"{one}: {word}" + (f" ({waits})" if waits else "")


def submitted(one: AnyResource, state: State) -> Submitted:
    return Submitted(
        kind=one.type.kind,
        namespace=one.namespace,
        name=one.name,
        uid=one.uid,
        phase=state.phase,
        result=state.result,
        waits_for=state.waits_for,
    )
