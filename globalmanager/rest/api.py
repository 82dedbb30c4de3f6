"""The handlers of the REST API. They read caches and sessions, and change nothing.

app gives the Api's routes to the server. Only `access` may wait for the Kubernetes API.
"""

from collections.abc import Collection, Iterable
from functools import partial
from http import HTTPStatus
from typing import Final, Protocol

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from edgeai.api import slices
from edgeai.api.resources import NODES, Object, ObjectRef, ResourceType
from edgeai.api.status import mapping, worker_entries
from edgeai.ids import NodeName, WorkerName
from globalmanager.cache.health import Health
from globalmanager.edge.sessions.registry import SessionInfo
from globalmanager.ha.contacts import Contacts
from globalmanager.kinds.training.edge_placement import is_edge
from globalmanager.rest.access import Access, Reading, check_names, listable
from globalmanager.rest.errors import RequestError, answer
from globalmanager.rest.pages import NameKey, ObjectKey, Window, page_of
from globalmanager.rest.routes import JSON, Parameter, Route, document
from globalmanager.rest.streams import StreamLimits, Streams, list_pieces
from globalmanager.rest.views import (
    HealthView,
    NodeListView,
    NodeView,
    ObjectListView,
    ReadyView,
    SessionView,
    StatusView,
    WorkerListView,
    object_view,
    status_view,
)

FIRST_GROUP: Final = "edgeai.io"  # the first group in the search when a request names no group

_NAMESPACE: Final = Parameter("namespace", "path", "namespace of the objects")
_PLURAL: Final = Parameter("plural", "path", "resource, e.g. jointinferenceservices")
_NAME: Final = Parameter("name", "path", "name of the object")
_GROUP: Final = Parameter(
    "group", "query", f"API group; without it: lists join all, an object is of {FIRST_GROUP} first"
)
_PAGE: Final = (
    Parameter("limit", "query", "largest number of items; default: all"),
    Parameter("continue", "query", "metadata.continue of the previous page"),
)
_LIST: Final = (_PLURAL, _GROUP, *_PAGE)
_NO_ACCESS: Final = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.TOO_MANY_REQUESTS,
)
_NOT_READY: Final = (HTTPStatus.SERVICE_UNAVAILABLE,)
_FAILURES: Final = (*_NO_ACCESS, *_NOT_READY)
_NOT_FOUND: Final = (HTTPStatus.NOT_FOUND, *_FAILURES)
_LIST_ERRORS: Final = (HTTPStatus.BAD_REQUEST, *_NOT_FOUND)


class ObjectCache(Protocol):
    """The objects in the informers' stores; the Engine implements this interface."""

    def get(self, ref: ObjectRef) -> Object | None:
        """The job resource; None when the store does not have it."""

    def list(self, plural: str, namespace: str = "") -> tuple[Object, ...]:
        """The job resources of one type, named as "<plural>.<group>"."""

    def nodes(self) -> tuple[Object, ...]: ...

    def slice(self, job: Object, name: str) -> Object | None:
        """The slice of the job with this name (see edgeai.api.slices)."""


class SessionRegistry(Protocol):
    """The sessions of this replica; edge.sessions.registry implements this interface."""

    def snapshot(self) -> Iterable[SessionInfo]: ...

    def problem(self, node: NodeName) -> str: ...

    def desired_count(self, node: NodeName) -> int: ...


class Replica(Protocol):
    """The state of this replica; the Core implements this interface."""

    def is_populated(self) -> bool:
        """Whether the caches are complete. Before, lists would be incomplete."""

    def health(self) -> Health:
        """The answer of /readyz."""


def require_populated(replica: Replica) -> None:
    """Raises: RequestError"""
    if not replica.is_populated():
        problem = "the caches are not filled yet; /readyz says what is missing"
        raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, problem)


class Api:
    """The REST API: its routes and their handlers."""

    def __init__(
        self,
        *,
        access: Access,
        cache: ObjectCache,
        sessions: SessionRegistry,
        contacts: Contacts,
        types: Collection[ResourceType],
        replica: Replica,
        registry: CollectorRegistry,
        version: str,
        stream_limits: StreamLimits = StreamLimits(),  # noqa: B008 - frozen
    ) -> None:
        self._access = access
        self._cache = cache
        self._sessions = sessions
        self._contacts = contacts
        self._types = sorted(types, key=lambda type_: (type_.group != FIRST_GROUP, type_.group))
        self._replica = replica
        self._registry = registry
        self._streams = Streams(stream_limits)
        self.routes = self._routes()
        self._document = msgspec.json.encode(document(self.routes, version=version))

    def _routes(self) -> tuple[Route, ...]:
        some = "/api/v1/namespaces/{namespace}/{plural}"
        one = some + "/{name}"
        of_some, of_one = (_NAMESPACE, *_LIST), (_NAMESPACE, _PLURAL, _NAME, _GROUP)
        return (
            Route("/api/v1/nodes", self.list_nodes, NodeListView, _PAGE, _LIST_ERRORS),
            Route("/api/v1/{plural}", self.list_everywhere, ObjectListView, _LIST, _LIST_ERRORS),
            Route(some, self.list_objects, ObjectListView, of_some, _LIST_ERRORS),
            Route(one, self.get_object, dict, of_one, _NOT_FOUND),
            Route(one + "/status", self.get_status, StatusView, of_one, _NOT_FOUND),
            Route(
                one + "/workers", self.list_workers, WorkerListView, (*of_one, *_PAGE), _LIST_ERRORS
            ),
            Route("/openapi.json", self.get_openapi, dict),
            Route("/healthz", self.get_health, HealthView),
            Route("/readyz", self.get_readiness, ReadyView, (), _NOT_READY, ReadyView),
            Route("/metrics", self.get_metrics, str, (), _FAILURES),
        )

    # ---- nodes ----

    async def list_nodes(self, request: web.Request) -> web.StreamResponse:
        """Nodes with their sessions"""
        caller = await self._access.identify(request)
        await self._access.check(request, caller, Reading("list", NODES))
        types = await listable(self._access, request, caller, self._types)
        sees_tasks = len(types) == len(self._types)
        require_populated(self._replica)
        nodes_by_name = {NodeName(node["metadata"]["name"]): node for node in self._cache.nodes()}
        live = {info.node: info for info in self._sessions.snapshot()}
        names = nodes_by_name.keys() | self._contacts.by_node().keys()
        page = page_of(map(NameKey, names), Window.of(request, NameKey))
        view = partial(self._node_view, sees_tasks=sees_tasks)
        items = (
            partial(view, name, nodes_by_name.get(name), live.get(name))
            for name in (NodeName(key.name) for key in page.keys)
        )
        return await self._streams.send(request, list_pieces(page.metadata, items))

    def _node_view(
        self, name: NodeName, node: Object | None, info: SessionInfo | None, *, sees_tasks: bool
    ) -> NodeView:
        contact = self._contacts.by_node().get(name)
        is_connected = info is not None or (contact is not None and contact.connected)
        return NodeView(
            name=name,
            in_cluster=node is not None,
            is_edge=is_edge(node),
            connected=is_connected,
            since=None if contact is None else contact.since,
            problem="" if is_connected else self._sessions.problem(name),
            certificate_ends_on=self._contacts.certificate_ends_on(name),
            tasks_desired=self._sessions.desired_count(name) if sees_tasks else None,
            tasks_held=info.held if info is not None and sees_tasks else None,
            session=None if info is None else session_view(info, sees_tasks=sees_tasks),
        )

    # ---- objects ----

    async def list_everywhere(self, request: web.Request) -> web.StreamResponse:
        """Job resources of all namespaces"""
        return await self._list(request, namespace="")

    async def list_objects(self, request: web.Request) -> web.StreamResponse:
        """Job resources of one namespace"""
        return await self._list(request, namespace=request.match_info["namespace"])

    async def get_object(self, request: web.Request) -> web.StreamResponse:
        """One job resource"""
        return await self._send(request, object_view(await self._object(request)))

    async def get_status(self, request: web.Request) -> web.StreamResponse:
        """The status of one job resource"""
        return await self._send(request, status_view(await self._object(request)))

    async def list_workers(self, request: web.Request) -> web.StreamResponse:
        """The last reports of the workers of one job resource, also of a fleet"""
        object_ = await self._object(request)
        slice_of = {
            worker: config_map
            for name in slices.slice_names(object_["metadata"]["name"])
            if (config_map := self._cache.slice(object_, name)) is not None
            for worker in slices.workers_of(config_map)
        }
        entries = worker_entries(mapping(object_.get("status")))

        def view(worker: WorkerName) -> Object:
            # Decoded when its turn comes: the entries of a large fleet are megabytes.
            entry = entries.get(worker) or slices.entry_of(slice_of.get(worker, {}), worker)
            return {"name": worker, **entry}

        names = entries.keys() | slice_of.keys()
        page = page_of(map(NameKey, names), Window.of(request, NameKey))
        items = (partial(view, WorkerName(key.name)) for key in page.keys)
        return await self._streams.send(request, list_pieces(page.metadata, items))

    async def _send(self, request: web.Request, view: object) -> web.StreamResponse:
        return await self._streams.send(request, [partial(msgspec.json.encode, view)])

    async def _list(self, request: web.Request, *, namespace: str) -> web.StreamResponse:
        caller = await self._access.identify(request)
        types = self._types_of(request)
        if namespace:
            check_names(namespace)
        for type_ in types:
            await self._access.check(request, caller, Reading("list", type_, namespace))
        require_populated(self._replica)
        keys = (
            ObjectKey(metadata.get("namespace", ""), metadata["name"], type_.group)
            for type_ in types
            for metadata in (
                object_["metadata"] for object_ in self._cache.list(str(type_), namespace)
            )
        )
        page = page_of(keys, Window.of(request, ObjectKey))
        type_of = {type_.group: type_ for type_ in types}
        # Only names are kept while the answer is sent. An object is read when its turn comes.
        items = (partial(self._view, type_of[key.group], key) for key in page.keys)
        return await self._streams.send(request, list_pieces(page.metadata, items))

    def _view(self, type_: ResourceType, key: ObjectKey) -> Object | None:
        object_ = self._cache.get(ObjectRef(type_, key.namespace, key.name))
        return None if object_ is None else object_view(object_)

    async def _object(self, request: web.Request) -> Object:
        caller = await self._access.identify(request)
        types = self._types_of(request)
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        check_names(namespace, name)
        for type_ in types:
            await self._access.check(request, caller, Reading("get", type_, namespace, name))
            require_populated(self._replica)
            object_ = self._cache.get(ObjectRef(type_, namespace, name))
            if object_ is not None:
                return object_
        groups = ", ".join(type_.group for type_ in types)
        problem = f"{types[0].plural} {namespace}/{name}: no such object in {groups}"
        raise RequestError(HTTPStatus.NOT_FOUND, problem)

    def _types_of(self, request: web.Request) -> list[ResourceType]:
        """The types of path and parameter `group`, in order of the search. Raises: RequestError"""
        plural, group = request.match_info["plural"], request.query.get("group")
        types = [
            type_
            for type_ in self._types
            if type_.plural == plural and group in (None, type_.group)
        ]
        if types:
            return types
        resources = ", ".join(sorted(str(type_) for type_ in self._types))
        requested = plural if group is None else f"{plural}.{group}"
        problem = f"{requested}: not served here; the served types are {resources}"
        raise RequestError(HTTPStatus.NOT_FOUND, problem)

    # ---- the process ----

    async def get_openapi(self, _request: web.Request) -> web.Response:
        """This description"""
        return web.Response(body=self._document, content_type=JSON)

    async def get_health(self, _request: web.Request) -> web.Response:
        """Whether the process answers"""
        return answer(HealthView(ok=True))

    async def get_readiness(self, _request: web.Request) -> web.Response:
        """Whether the caches can be relied on"""
        health = self._replica.health()
        view = ReadyView(ready=health.ready, reasons=list(health.reasons))
        return answer(view, status=200 if health.ready else 503)

    async def get_metrics(self, request: web.Request) -> web.Response:
        """Metrics in Prometheus' text format"""
        caller = await self._access.identify(request)
        await self._access.check(request, caller, Reading("get", path="/metrics"))
        body = generate_latest(self._registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


def session_view(info: SessionInfo, *, sees_tasks: bool) -> SessionView:
    return SessionView(
        id=info.session,
        instance=info.ledger_id,
        protocol_version=info.protocol_version,
        release=info.release,
        synced=info.synced,
        last_report_at=info.last_report_at if sees_tasks else None,
    )
