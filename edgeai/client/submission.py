"""What `train`, `serve` and `federate` share: the names of objects, their nodes, their creation."""

import os
import re
import secrets
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, Self, TypeVar

import msgspec

from edgeai.api.resources import NODES, Object, ObjectRef
from edgeai.client.blocking import Client
from edgeai.client.errors import InvalidObject
from edgeai.client.objects import AnyResource
from edgeai.ids import is_subdomain
from edgeai.kube.errors import AlreadyExists, Forbidden

R = TypeVar("R", bound=AnyResource)
LOCAL_PYTHON: Final = "EDGEAI_PYTHON"
_MAX_NAME_CHARS: Final = 40
_NODES_SHOWN: Final = 20


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that one call of a user creates: all of them or none.

    One case leaves the main object, without its parts: Ctrl-C, or a broken connection, after the
    API server has stored it and before the answer has come.
    """

    call: str
    """The function that the user has called, for errors."""
    name: str
    """Of the main object."""
    namespace: str
    client: Client
    local_python: str
    """Of the workers in the local cluster, which are processes of this machine; "" elsewhere."""

    @classmethod
    def open(
        cls,
        call: str,
        function: Callable[..., object],
        name: str,
        namespace: str,
        client: Client | None,
    ) -> Self:
        """Args: as of `train`. Raises: InvalidObject, ApiError"""
        if not name:
            words = re.sub("[^a-z0-9]+", "-", getattr(function, "func", function).__name__.lower())
            name = f"{words[:_MAX_NAME_CHARS].strip('-') or call}-{secrets.token_hex(2)}"
        is_wrong, remedy = not is_subdomain(name), "use lower-case letters, digits, '-' and '.'"
        check(call, [("name", is_wrong, f"{name!r} is no name", remedy)])
        if client is None:
            client = Client()
        is_local = client.run(client.asynchronous.kube.about()).is_local
        return cls(
            call=call,
            name=name,
            namespace=namespace or client.namespace,
            client=client,
            local_python=(os.environ.get(LOCAL_PYTHON) or sys.executable) if is_local else "",
        )

    def check_nodes(self, nodes: Collection[str]) -> None:
        """Raises: InvalidObject for a node that does not exist"""
        if not nodes:
            return
        try:
            items = self.client.run(self.client.asynchronous.kube.list(NODES)).items
        except Forbidden:
            return  # a tenant need not see nodes; the job says what it waits for
        names = sorted(item["metadata"]["name"] for item in items)
        remedy = f"use {', '.join(names[:_NODES_SHOWN])}"
        rows = [("node", node not in names, f"{node!r} does not exist", remedy) for node in nodes]
        check(self.call, rows)

    def create(
        self, kind: type[R], spec: Object, parts: Sequence[tuple[type[Any], str, Object]] = ()
    ) -> R:
        """Create the main object, and parts, which are deleted with it.

        Args: parts: kind, name and spec of each
        Raises: InvalidObject for a name that is taken; ApiError
        """
        made = self._create(kind, self.name, spec)
        head = {field: made.object[field] for field in ("apiVersion", "kind")}
        owner = {**head, "name": made.name, "uid": made.uid}
        try:
            for part, name, part_spec in parts:
                self._create(part, name, part_spec, ownerReferences=[owner])
        except BaseException:
            self.client.delete(made)
            raise
        return made

    def _create(self, kind: type[R], name: str, spec: Object, **metadata: Any) -> R:
        type_, kube = kind.type_in(), self.client.asynchronous.kube
        metadata |= {"name": name, "namespace": self.namespace}
        try:
            document = {"metadata": metadata, "spec": spec}
            return kind(self.client.run(kube.create(type_, document, is_strict=True)))
        except AlreadyExists as error:
            remedy = f"use another name, or delete {ObjectRef(type_, self.namespace, name)}"
            problem = f"{name!r} is taken by another {type_.kind}"
            raise InvalidObject(self.call, "name", problem, remedy) from error


def check(call: str, rows: Iterable[tuple[str, bool, str, str]]) -> None:
    """Args: rows: field, whether it is wrong, problem, remedy. Raises: InvalidObject"""
    for field, is_wrong, problem, remedy in rows:
        if is_wrong:
            raise InvalidObject(call, field, problem, remedy)


def placement(nodes: Sequence[str]) -> Object:
    """The fields of a pod that runs on one of these nodes; no nodes: on any."""
    if not nodes:
        return {}
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        for node in nodes
    ]
    return {
        "affinity": node_affinity(terms),
        # An edge node may have a taint, so that only those who name the node run there.
        "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
    }


def node_affinity(terms: Sequence[Object]) -> Object:
    """Args: terms: the pod runs on a node that one of them matches"""
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}
