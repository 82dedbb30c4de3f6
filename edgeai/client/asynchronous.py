"""The client of edgeai's kinds for programs with an event loop. `blocking` is for all others."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar

import msgspec

from edgeai import times
from edgeai.api import actions
from edgeai.api.resources import Object, ObjectRef, ResourceType
from edgeai.client import logs
from edgeai.client.changes import Word, follow
from edgeai.client.errors import CLOSED, ClientUnusable
from edgeai.client.excerpts import state_with_logs
from edgeai.client.objects import AnyResource
from edgeai.client.pods import pods_of
from edgeai.client.state import State
from edgeai.client.strictness import spec_refusal, unknown_fields
from edgeai.client.waiting import Check, check_of, wait_for
from edgeai.client.words import check_document, resource, type_of_document
from edgeai.errors import InvalidName
from edgeai.ids import is_subdomain
from edgeai.kube.errors import ApiError
from edgeai.kube.remedies import OF_A_COMMAND
from edgeai.kube.sender import ClientSettings
from edgeai.kube.user import UserClient
from edgeai.kubeconfig import default_state_dir, kubeconfig_of, namespace_of

R = TypeVar("R", bound=AnyResource)
MANAGER: Final = "edgeai-client"
"""The field manager of what this client applies."""
WAIT_S: Final = 300.0
OF_A_USER: Final = ClientSettings(remedies=OF_A_COMMAND)


class Event(msgspec.Struct, Generic[R], frozen=True):
    """One change of a watch."""

    type: Word
    object: R


class AsyncClient:
    """Reads and writes objects of edgeai's kinds. Every method may raise ApiError, and
    ClientUnusable after `close`.

    Args:
        kube: the client of the API, which this client closes
        namespace: where objects are that name none
    """

    def __init__(self, kube: UserClient, namespace: str = "default") -> None:
        self._kube = kube
        self._is_closed = False
        self.namespace = namespace

    @property
    def kube(self) -> UserClient:
        """Raises: ClientUnusable"""
        if self._is_closed:
            raise ClientUnusable(CLOSED)
        return self._kube

    @classmethod
    async def open(
        cls, kubeconfig: str | Path | None = None, namespace: str = "", *, context: str = ""
    ) -> Self:
        """A client for a context of a kubeconfig.

        Args:
            kubeconfig: None: $KUBECONFIG, else the local cluster's, else ~/.kube/config
            namespace: "" for the namespace of the context
            context: "" for the current context
        Raises: SettingsError, which names the file and its fault; InvalidName
        """
        if namespace and not is_subdomain(namespace):
            raise InvalidName("namespace", namespace, "letters, digits and -")
        path = None if kubeconfig is None else Path(kubeconfig)
        file = kubeconfig_of(path, default_state_dir())
        kube = await UserClient.from_kubeconfig(file, OF_A_USER, context=context)
        return cls(kube, namespace or namespace_of(file, context))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._is_closed = True
        await self._kube.close()

    async def get(self, kind: type[R], name: str, *, namespace: str = "", group: str = "") -> R:
        """Args: group: one of the kind's API groups; "" for the first"""
        ref = ObjectRef(_type_of(kind, group), namespace or self.namespace, name)
        return kind(await self.kube.get(ref))

    async def list(
        self, kind: type[R], *, namespace: str | None = None, group: str = "", labels: str = ""
    ) -> list[R]:
        """All objects of the kind in one of its groups.

        Args:
            namespace: "" for all namespaces; None for the namespace of the client
            labels: a label selector
        """
        where = self.namespace if namespace is None else namespace
        type_ = _type_of(kind, group)
        listing = await self.kube.list(type_, namespace=where, label_selector=labels)
        return [kind(item) for item in listing.items]

    async def apply(self, object_: R, *, is_forced: bool = False) -> R:
        """Create the object, or change the fields of .spec, labels and annotations that it has.

        By server-side apply: fields of others stay, and a field goes that was applied before.

        Args: is_forced: take over fields that another client has set to other values
        Raises: Conflict, which names these fields; InvalidObject for a field that the kind does
            not have
        """
        document = await self.apply_document(object_.object, is_forced=is_forced)
        return type(object_)(document)

    async def apply_document(
        self, document: Mapping[str, Any], *, is_forced: bool = False
    ) -> Object:
        """`apply` for an object as a file has it: of edgeai's kinds, or a ConfigMap or a Secret.

        Raises: UnknownKind, InvalidObject
        """
        checked = check_document(document, "the document")
        source = checked["metadata"]
        namespace = source.get("namespace") or self.namespace
        metadata: Object = {"name": source["name"], "namespace": namespace}
        metadata |= {key: source[key] for key in ("labels", "annotations") if source.get(key)}
        # A status is nobody's wish.
        object_: Object = {key: value for key, value in checked.items() if key != "status"}
        object_["metadata"] = metadata
        type_ = type_of_document(checked) or resource(checked).type
        try:
            return await self.kube.apply(
                type_, object_, manager=MANAGER, is_forced=is_forced, is_strict=True
            )
        except ApiError as error:
            if fields := unknown_fields(error):
                subject = f"{type_.kind} {namespace}/{source['name']}"
                raise spec_refusal(type_, subject, fields) from error
            raise

    async def delete(self, object_: AnyResource) -> None:
        """Delete the object, and no other one that may have its name now. Its workers go with it.

        Raises: Conflict when another object has the name
        """
        await self.kube.delete(self._ref(object_), uid=object_.metadata.get("uid"))

    async def suspend(self, job: R) -> R:
        """End the job's pods, until `resume`. Raises: NotPossible for a kind without suspension"""
        return await self._change(job, actions.suspend(job.DEFINITION, job.uid))

    async def resume(self, job: R) -> R:
        """Let a suspended job run again. Raises: NotPossible"""
        return await self._change(job, actions.resume(job.DEFINITION, job.uid))

    async def roll(self, job: R, action: str) -> R:
        """Change how a new version of the Model goes to the nodes of a fleet.

        Args: action: "pause", "resume", "promote" (begin the next wave) or "rollback"
        Raises: NotPossible for a job without spec.rollout
        """
        if action not in actions.ROLLOUT:
            raise actions.NotPossible(f"{action[:64]!r} is none of {', '.join(actions.ROLLOUT)}")
        current = type(job)(await self.kube.get(self._ref(job)))
        return await self._change(job, actions.roll(action, current.object, job.uid))

    async def scale(self, job: R, replicas: int) -> R:
        """Set the number of the job's workers.

        Raises: NotPossible for a kind that has no number of workers, or for a wrong number
        """
        patch = actions.scale(job.DEFINITION, job.uid, replicas)
        if actions.replicas_of(job.DEFINITION, job.object) is None:
            raise actions.NotPossible(f"{job} has no workers whose number is set, only a master")
        return await self._change(job, patch)

    async def _change(self, job: R, patch: Object) -> R:
        """Raises: Conflict when another object has the name"""
        return type(job)(await self.kube.merge_patch(self._ref(job), patch, is_strict=True))

    async def wait(
        self, object_: R, condition: str | Callable[[R], bool], *, timeout_s: float = WAIT_S
    ) -> R:
        """The object once it is so.

        Args:
            condition: "TYPE" or "TYPE=STATUS" of a condition, "ended" (it has succeeded or failed),
                "deleted", or a function of the object
        Raises: WaitTimeout, which says for what; ObjectGone, also when another has its name
        """
        kind, ref = type(object_), self._ref(object_)
        check: Check | None
        if isinstance(condition, str):
            event, check = condition, check_of(condition)
        else:
            event, check = "what was waited for", lambda document: condition(kind(document))
        document = await wait_for(
            self.kube, ref, event, check, timeout_s=timeout_s, uid=object_.uid
        )
        return object_ if document is None else kind(document)

    async def watch(
        self, kind: type[R], *, name: str = "", namespace: str | None = None, group: str = ""
    ) -> AsyncGenerator[Event[R], None]:
        """Every object as ADDED, and then every change, without end, also over restarts of the API
        server. Iterate inside `contextlib.aclosing`.
        """
        where = self.namespace if namespace is None else namespace
        ref = ObjectRef(_type_of(kind, group), where, name)
        async with aclosing(follow(self.kube, ref)) as changes:
            async for change in changes:
                yield Event(change.type, kind(change.object))

    async def state(self, job: AnyResource) -> State:
        """How far the job is, as its conditions and its pods say now. A container that has crashed
        comes with the last lines of its log, where the user may read it.
        """
        current = type(job)(await self.kube.get(self._ref(job)))
        pods = await pods_of(self.kube, current)
        return await state_with_logs(self.kube, current.object, pods, times.utc_now())

    async def logs(
        self,
        job: AnyResource,
        *,
        worker: str = "",
        follow: bool = False,
        tail: int | None = None,
        since_s: int | None = None,
        is_previous: bool = False,
    ) -> AsyncGenerator[logs.LogLine, None]:
        """The lines of the logs of all pods of the job. Iterate inside `contextlib.aclosing`.

        Args:
            worker: only of this worker: a pod, the end of its name, or a role
            follow: go on until the job has ended or is gone
            tail: at most this many last lines of each container
            since_s: only lines that are not older, seconds
            is_previous: of the run of each container before its last restart; not with `follow`
        """
        reader = logs.follow_logs if follow else logs.read_logs
        part = logs.Part(tail=tail, since_s=since_s, is_previous=is_previous)
        current = type(job)(await self.kube.get(self._ref(job)))
        async with aclosing(reader(self.kube, current, worker, part)) as lines:
            async for line in lines:
                yield line

    def _ref(self, object_: AnyResource) -> ObjectRef:
        return ObjectRef(object_.type, object_.namespace or self.namespace, object_.name)


def _type_of(kind: type[AnyResource], group: str) -> ResourceType:
    """Raises: TypeError where a program gives the name of a kind"""
    if not hasattr(kind, "type_in"):
        raise TypeError(f"{kind!r} is no class of a kind; use one of edgeai.client, such as Model")
    return kind.type_in(group)
