"""One namespace of a cluster as a test uses it: resources by their plural."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, TypeVar

from edgeai.cli.api import Object
from tests.conformance.clusters import AnyCluster
from tests.conformance.objects import GROUP
from tests.support.client import MERGE_PATCH, Answer, Client, Stream
from tests.support.waiting import eventually

T = TypeVar("T")

_ROOTS: Final = {
    "deployments": "/apis/apps/v1",
    "events": "/api/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
    "roles": "/apis/rbac.authorization.k8s.io/v1",
    "widgets": f"/apis/{GROUP}/v1alpha1",
}


class Space:
    """Args: name: of the namespace."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name

    def path(self, plural: str, name: str = "", subresource: str = "") -> str:
        root = _ROOTS.get(plural, "/api/v1")
        steps = (root, "namespaces", self.name, plural, name, subresource)
        return "/".join(filter(None, steps))

    # Requests whose answer is the test's subject

    def post(self, plural: str, object_: Any, **options: Any) -> Answer:
        return self.client("POST", self.path(plural), object_, **options)

    def put(self, plural: str, object_: Object, *, subresource: str = "", **query: Any) -> Answer:
        path = self.path(plural, object_["metadata"]["name"], subresource)
        return self.client("PUT", path, object_, **query)

    def patch(
        self,
        plural: str,
        name: str,
        patch: Any,
        *,
        content_type: str = MERGE_PATCH,
        subresource: str = "",
        **query: Any,
    ) -> Answer:
        path = self.path(plural, name, subresource)
        return self.client("PATCH", path, patch, content_type=content_type, **query)

    def delete(self, plural: str, name: str, options: Object | None = None, **query: Any) -> Answer:
        return self.client("DELETE", self.path(plural, name), options, **query)

    def watch(self, plural: str, **query: Any) -> AbstractContextManager[Stream]:
        return self.client.watch(self.path(plural), **query)

    # Requests that must succeed

    def create(self, plural: str, object_: Object) -> Object:
        answer = self.post(plural, object_)
        assert answer.status == 201, answer.body
        body: Object = answer.body
        return body

    def get(self, plural: str, name: str) -> Object:
        return self.client("GET", self.path(plural, name)).ok()

    def find(self, plural: str, name: str) -> Object | None:
        """None: there is no such object."""
        answer = self.client("GET", self.path(plural, name))
        return None if answer.status == 404 else answer.ok()

    def page(self, plural: str, **query: Any) -> Object:
        """A list, or a part of one."""
        return self.client("GET", self.path(plural), **query).ok()

    def list(self, plural: str, **query: Any) -> list[Object]:
        items: list[Object] = self.page(plural, **query)["items"]
        return items

    def version(self, plural: str) -> str:
        """Where a watch can begin."""
        version: str = self.page(plural)["metadata"]["resourceVersion"]
        return version

    # Waiting

    def until_gone(self, plural: str, name: str) -> None:
        eventually(f"the end of {name}", lambda: self.find(plural, name) is None)


@contextmanager
def fresh_space(cluster: AnyCluster) -> Iterator[Space]:
    """A namespace of its own, deleted afterwards."""
    made = cluster.client("POST", "/api/v1/namespaces", {"metadata": {"generateName": "test-"}})
    space = Space(cluster.client, made.ok()["metadata"]["name"])
    if cluster.has_service_accounts:
        eventually("its ServiceAccount", lambda: space.find("serviceaccounts", "default"))
    yield space
    cluster.client("DELETE", f"/api/v1/namespaces/{space.name}")
