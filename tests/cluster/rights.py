"""Rights of the GlobalManager on a real API server: those of deploy/, all of them or some."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from globalmanager.manifests.rbac import NAMESPACE, ROLE, cluster_rules, namespace_rules
from tests.support.client import Client

_RBAC: Final = "rbac.authorization.k8s.io"
_DENIAL: Final = re.compile(r'cannot (\w+) resource "([a-z/]+)" in API group "([a-z0-9.]*)"')

Rule = dict[str, Any]


class Right(NamedTuple):
    group: str
    resource: str
    verb: str


def granted() -> set[Right]:
    """Those of deploy/."""
    return {right for rule in (*cluster_rules(), *namespace_rules()) for right in _rights_of(rule)}


def denied_in(text: str) -> set[Right]:
    """The rights that a text says are missing, in the API server's words."""
    unquoted = text.replace('\\"', '"')  # the text may be JSON
    denied = {Right(group, resource, verb) for verb, resource, group in _DENIAL.findall(unquoted)}
    return denied | (_TO_BLOCK_DELETION if "blockOwnerDeletion" in text else set())


# The admission plugin OwnerReferencesPermissionEnforcement does not name it.
_TO_BLOCK_DELETION: Final = {Right("edgeai.io", "jointinferenceservices/finalizers", "update")}


class Rights:
    """Of one user who has none else. The API server knows a change after a moment."""

    def __init__(self, client: Client, user: str) -> None:
        self._client = client
        self._user = user

    def bind(self) -> None:
        """Grant nothing yet."""
        subject = {"kind": "User", "name": self._user, "apiGroup": _RBAC}
        for kind, metadata, _ in _ROLES:
            head = {"apiVersion": f"{_RBAC}/v1", "metadata": metadata}
            role = {"apiGroup": _RBAC, "kind": kind, "name": metadata["name"]}
            binding = {"roleRef": role, "subjects": [subject]}
            self._client.request("POST", _collection(kind, metadata), head | {"rules": []})
            self._client.request("POST", _collection(f"{kind}Binding", metadata), head | binding)

    def unbind(self) -> None:
        """Take back what `bind` has made."""
        for kind, metadata, _ in _ROLES:
            for made in (kind, f"{kind}Binding"):
                self._client.delete(f"{_collection(made, metadata)}/{metadata['name']}")

    def grant(self, is_granted: Callable[[Right], bool] = lambda _right: True) -> None:
        """Exactly those rights of deploy/."""
        for kind, metadata, rules in _ROLES:
            path = f"{_collection(kind, metadata)}/{metadata['name']}"
            left = [each for rule in rules() for each in _reduced(rule, is_granted)]
            self._client.patch(path, {"rules": left})

    def grant_all_but(self, *rights: Right) -> None:
        assert set(rights) <= granted()
        self.grant(lambda right: right not in rights)


_ROLES: Final = (
    ("ClusterRole", {"name": ROLE}, cluster_rules),
    ("Role", {"name": ROLE, "namespace": NAMESPACE}, namespace_rules),
)


def _collection(kind: str, metadata: dict[str, str]) -> str:
    where = f"namespaces/{NAMESPACE}/" if "namespace" in metadata else ""
    return f"/apis/{_RBAC}/v1/{where}{kind.lower()}s"


def _rights_of(rule: Rule) -> Iterator[Right]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            yield from (Right(group, resource, verb) for verb in rule["verbs"])


def _reduced(rule: Rule, is_granted: Callable[[Right], bool]) -> Iterator[Rule]:
    """One rule for each right."""
    for right in filter(is_granted, _rights_of(rule)):
        yield rule | {
            "apiGroups": [right.group],
            "resources": [right.resource],
            "verbs": [right.verb],
        }
