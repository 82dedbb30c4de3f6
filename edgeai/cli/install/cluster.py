"""The cluster to which an installation is applied: objects by name, and who has made them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from edgeai.api.resources import Object, ObjectRef, ResourceType
from edgeai.backoff import Backoff
from edgeai.cli.install.errors import InstallError
from edgeai.cli.install.kustomization import CLUSTER_SCOPED
from edgeai.errors import Unavailable
from edgeai.ids import Uid
from edgeai.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound
from edgeai.kube.user import UserClient

T = TypeVar("T")
Say = Callable[[str], None]
"""Prints one line for the user."""

MANAGER: Final = "edgeai-install"
"""Field manager of all that the installation applies."""
LABEL: Final = "edgeai.io/installation"
"""Label of all that the installation has made. Its value is the namespace of the installation."""
_PLURALS: Final = {"NetworkPolicy": "networkpolicies"}
_RIGHT_MISSING: Final = " cannot "
_NO_TYPE: Final = "could not find the requested resource"
_OPERATOR: Final = "install the Prometheus operator first, or leave out monitoring"
_LOCAL: Final = "the local cluster of edgeai up has edgeai already: name another with --kubeconfig"
_REMEDIES: Final = {
    "daemonsets.apps": _LOCAL,
    "flowschemas.flowcontrol.apiserver.k8s.io": _LOCAL,
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": _LOCAL,
    "servicemonitors.monitoring.coreos.com": _OPERATOR,
    "prometheusrules.monitoring.coreos.com": _OPERATOR,
}


class Name(msgspec.Struct, frozen=True, order=True):
    """Names one object of an installation, also of a type that this version does not know."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @property
    def ref(self) -> ObjectRef:
        group, _, version = self.api_version.rpartition("/")
        plural = _PLURALS.get(self.kind, self.kind.lower() + "s")
        type_ = ResourceType(
            group, version, plural, self.kind, namespaced=self.kind not in CLUSTER_SCOPED
        )
        return ObjectRef(type_, self.namespace, self.name)

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where}"


def name_of(object_: Object) -> Name:
    metadata = object_["metadata"]
    return Name(
        object_["apiVersion"], object_["kind"], metadata.get("namespace", ""), metadata["name"]
    )


class Cluster:
    """Args:
    namespace: of the installation
    say: tells the user what is waited for
    timeout_s: how long all waits of the command may take together
    """

    def __init__(self, client: UserClient, namespace: str, say: Say, *, timeout_s: float) -> None:
        self.client = client
        self.namespace = namespace
        self.say = say
        self._deadline = asyncio.get_running_loop().time() + timeout_s
        self._timeout_s = timeout_s
        self._has_answered = False  # a server that never answers may be a wrong one

    async def find(self, name: Name) -> Object | None:
        """The object; None when there is none. Raises: InstallError when there is no such type"""
        try:
            return await self.retried(lambda: self.client.get(name.ref))
        except NotFound as error:
            if error.reason and _NO_TYPE not in error.message:
                return None
            remedy = _REMEDIES.get(str(name.ref.type), "is the cluster too old?")
            raise InstallError(
                f"this cluster has no {name.ref.type} of {name.api_version}; {remedy}"
            ) from error

    async def find_all(self, names: Iterable[Name]) -> list[tuple[Name, Object]]:
        """Those that are there."""
        names = list(names)
        found = await asyncio.gather(*map(self.find, names))
        return [(name, each) for name, each in zip(names, found, strict=True) if each is not None]

    def is_ours(self, object_: Object) -> bool:
        return self.owner(object_) == self.namespace

    @staticmethod
    def owner(object_: Object) -> str:
        """The namespace of the installation that has made the object; "" for all others."""
        return str((object_["metadata"].get("labels") or {}).get(LABEL, ""))

    def labelled(self, object_: Object) -> Object:
        metadata = object_["metadata"]
        labels = {**(metadata.get("labels") or {}), LABEL: self.namespace}
        return {**object_, "metadata": {**metadata, "labels": labels}}

    async def apply(self, object_: Object) -> Object:
        """Make the object what is wanted, whatever others have set in the same fields."""
        return await self._apply(object_)

    async def rehearse(self, object_: Object) -> None:
        """Raises: InstallError when `apply` would be refused. Nothing is changed"""
        await self._apply(object_, is_dry=True)

    async def _apply(self, object_: Object, *, is_dry: bool = False) -> Object:
        type_, wanted = name_of(object_).ref.type, self.labelled(object_)

        async def attempt() -> Object:
            return await self.client.apply(
                type_, wanted, manager=MANAGER, is_forced=True, is_dry=is_dry
            )

        return await self.retried(attempt)

    async def create(self, object_: Object) -> Object:
        """Raises: InstallError when somebody else has made such an object meanwhile"""
        name = name_of(object_)
        wanted = self.labelled(object_)
        try:
            return await self.retried(lambda: self.client.create(name.ref.type, wanted))
        except AlreadyExists as error:
            raise InstallError(
                f"{name} was made by somebody else meanwhile; type it again"
            ) from error

    async def delete(self, name: Name) -> bool:
        """Delete the object if the installation has made it. Returns: whether it was there"""
        found = await self.find(name)
        if found is None or not self.is_ours(found):
            return False
        uid = Uid(found["metadata"]["uid"])
        try:
            await self.retried(lambda: self.client.delete(name.ref, uid=uid))
        except (NotFound, Conflict):
            return False  # another object has the name since
        return True

    async def retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """What `attempt` returns, also while the API server is away for a moment.

        Raises: InstallError when a right is missing; every ApiError that another try does not cure;
            Unavailable when the server has never answered
        """
        backoff = Backoff(base_s=0.2, max_s=3.0, floor_s=0.1)
        told = ""
        while True:
            try:
                result = await attempt()
                self._has_answered = True
                return result
            except Forbidden as error:
                raise _denied(error) from error
            except Unavailable as error:
                if not self._has_answered and not getattr(error, "code", 0):
                    raise
                delay_s = backoff.next_s(at_least_s=getattr(error, "retry_after_s", 0.0))
                if self._left_s() <= delay_s:
                    raise InstallError(f"{error}; what was applied stays: type it again") from error
                problem = str(getattr(error, "problem", error))
                if problem != told:
                    self.say(f"waiting for the Kubernetes API: {problem}")
                told = problem
                await asyncio.sleep(delay_s)

    async def wait(
        self, what: str, missing: Callable[[], Awaitable[str]], *, remedy: str, poll_s: float = 1.0
    ) -> None:
        """Ask until nothing is missing, and tell what is. Raises: InstallError at the deadline"""
        told = ""
        while lacking := await missing():
            if lacking != told:
                self.say(f"waiting for {what}: {lacking}")
            told = lacking
            if self._left_s() <= 0:
                problem = f"{what}: after {self._timeout_s:g} s still {lacking}"
                raise InstallError(f"{problem}; {remedy}")
            await asyncio.sleep(poll_s)

    def _left_s(self) -> float:
        return self._deadline - asyncio.get_running_loop().time()


def _denied(error: Forbidden) -> InstallError:
    """RBAC, a quota, an admission plugin or a namespace that ends: the message says which."""
    message = error.message or str(error)
    if _RIGHT_MISSING in message or "attempting to grant" in message:
        return InstallError(f"{message}; type it as an administrator of the cluster")
    if "being terminated" in message:
        return InstallError(f"{message}; wait until the namespace is gone, and type it again")
    remedy = error.remedy and f"; {error.remedy}"
    return InstallError(f"{error.verb} {error.target}: {message}{remedy}")


def some(names: Sequence[object], most: int = 3) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(map(str, names[:most])) + (f" and {more} more" if more > 0 else "")
