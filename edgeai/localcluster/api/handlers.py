"""The verbs of the API: translates requests to calls of the store, and results to answers.

`server` authenticates a request for /api/… or /apis/… and passes it to this module. The rules for
objects are in `store` and `strategy`. Callers inside the process use the store, so they follow the
same rules.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from edgeai.localcluster.api import commands, requests, scale, tables
from edgeai.localcluster.api.requests import Body, Options, Target
from edgeai.localcluster.api.streams import (
    StreamOptions,
    requested_container,
    stream_log,
    stream_watch,
)
from edgeai.localcluster.objects import errors, patches, podexec, podlogs, schemas, strategy
from edgeai.localcluster.objects.history import Watch
from edgeai.localcluster.objects.patches import PatchType
from edgeai.localcluster.objects.resources import PODS, Object, Resource
from edgeai.localcluster.objects.store import Store
from edgeai.times import Clock

_NO_FIELD_MANAGER = errors.required("fieldManager", "is required for apply patch")

Handler = Callable[[web.Request, Target, Options], Awaitable[web.StreamResponse]]


class API:
    """Serves the resources of one store."""

    def __init__(self, store: Store, *, now: Clock, bookmark_interval_s: float) -> None:
        self._store = store
        self._now = now
        self._bookmark_interval_s = bookmark_interval_s
        self._watches: set[Watch] = set()
        self.log_source: podlogs.LogSource | None = None
        self.exec_target: podexec.ExecTarget | None = None
        self._collection: dict[str, Handler] = {
            "GET": self._list_or_watch,
            "POST": self._create,
            "DELETE": self._delete_collection,
        }
        self._object: dict[str, Handler] = {
            "GET": self._get,
            "PUT": self._update,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }
        self._subresources: dict[str, dict[str, Handler]] = {
            "status": {"GET": self._get, "PUT": self._update, "PATCH": self._patch},
            "scale": {"GET": self._get_scale, "PUT": self._scale, "PATCH": self._scale},
            "log": {"GET": self._log},
            "exec": {"GET": self._exec, "POST": self._exec},
        }

    @property
    def open_watches(self) -> int:
        return len(self._watches)

    def close(self) -> None:
        """End the watches of all clients."""
        for watch in tuple(self._watches):
            watch.close()

    async def handle(self, request: web.Request, path: str) -> web.StreamResponse:
        """Serve a request for `path`, which begins with /api or /apis and is percent-encoded.

        Raises: errors.APIError
        """
        target = requests.target(self._store.registry, path)
        handler = self._handlers(target).get(request.method)
        if handler is None:
            raise errors.MethodNotAllowed(f"{request.method} is not supported on {path}")
        return await handler(request, target, Options(request.query, request.method))

    def _handlers(self, target: Target) -> dict[str, Handler]:
        if not target.name:
            return self._collection
        if not target.subresource:
            return self._object
        if target.subresource not in target.resource.subresources:
            named = f"{target.resource.group_resource}/{target.subresource}"
            raise errors.NotFound(f"the local cluster does not serve {named}")
        return self._subresources[target.subresource]

    # Verbs that read objects

    async def _get(
        self, request: web.Request, target: Target, options: Options
    ) -> web.StreamResponse:
        object_ = self._store.get(target.resource, target.namespace, target.name)
        return self._answer(request, target.resource, object_)

    async def _list_or_watch(
        self, request: web.Request, target: Target, options: Options
    ) -> web.StreamResponse:
        if options.flag("watch"):
            return await self._watch(request, target, options)
        page = self._store.list(
            target.resource,
            namespace=target.namespace,
            selector=options.selector(target.resource),
            limit=options.number("limit") or 0,
            continue_token=options.text("continue"),
        )
        metadata: Object = {"resourceVersion": str(page.resource_version)}
        if page.continue_token:
            metadata["continue"] = page.continue_token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
        return _json(self._view(request, target.resource).many(page.items, metadata))

    async def _watch(
        self, request: web.Request, target: Target, options: Options
    ) -> web.StreamResponse:
        bookmarks = options.flag("allowWatchBookmarks")
        stream = StreamOptions(
            timeout_s=options.number("timeoutSeconds"),
            bookmarks=bookmarks,
            bookmark_interval_s=self._bookmark_interval_s,
            mark_initial_end=bookmarks and options.flag("sendInitialEvents"),
        )
        try:
            watch = self._open_watch(target, options)
        except errors.Gone as error:  # Clients expect 410 as an event of the stream
            return _json({"type": "ERROR", "object": error.status()})
        self._watches.add(watch)
        try:
            view = self._view(request, target.resource)
            return await stream_watch(request, watch, view, stream)
        finally:
            self._watches.discard(watch)
            watch.close()

    def _open_watch(self, target: Target, options: Options) -> Watch:
        """Open a watch. A watch without resourceVersion, or from 0, begins with all objects."""
        since = options.number("resourceVersion") or None
        return self._store.watch(
            target.resource,
            namespace=target.namespace,
            since=None if options.flag("sendInitialEvents") else since,
            selector=options.selector(target.resource),
        )

    async def _log(
        self, request: web.Request, target: Target, options: Options
    ) -> web.StreamResponse:
        pod = self._store.get(PODS, target.namespace, target.name)
        container = requested_container(pod, options.text("container"))
        if self.log_source is None:
            raise errors.NotFound(f'nothing in this cluster runs the pod "{target.name}"')
        query = podlogs.LogQuery(
            namespace=target.namespace,
            pod=target.name,
            uid=pod["metadata"]["uid"],
            container=container,
            follow=options.flag("follow"),
            previous=options.flag("previous"),
            tail_lines=options.number("tailLines"),
            since_s=options.number("sinceSeconds"),
            timestamps=options.flag("timestamps"),
        )
        return await stream_log(request, self.log_source(query))

    async def _exec(
        self, request: web.Request, target: Target, options: Options
    ) -> web.StreamResponse:
        pod = self._store.get(PODS, target.namespace, target.name)
        container = requested_container(pod, options.text("container"))
        if self.exec_target is None:
            raise errors.NotFound(f'nothing in this cluster runs the pod "{target.name}"')
        query = podexec.ExecQuery(
            namespace=target.namespace,
            pod=target.name,
            uid=pod["metadata"]["uid"],
            container=container,
            command=tuple(request.query.getall("command", ())),
        )
        return await commands.run(request, self.exec_target, query, has_stdin=options.flag("stdin"))

    # Verbs that write objects

    async def _create(
        self, request: web.Request, target: Target, options: Options
    ) -> web.StreamResponse:
        body = await _body(request)
        object_ = _with_name_of_path(target, body.content)
        warnings = _warnings(target.resource, object_, body, options)
        created = self._store.create(target.resource, object_, dry_run=options.dry_run)
        return self._answer(request, target.resource, created, status=201, warnings=warnings)

    async def _update(
        self, request: web.Request, target: Target, options: Options
    ) -> web.StreamResponse:
        body = await _body(request)
        object_ = _with_name_of_path(target, body.content)
        warnings = _warnings(target.resource, object_, body, options)
        updated = self._store.update(
            target.resource, object_, subresource=target.subresource, dry_run=options.dry_run
        )
        return self._answer(request, target.resource, updated, warnings=warnings)

    async def _patch(
        self, request: web.Request, target: Target, options: Options
    ) -> web.StreamResponse:
        resource = target.resource
        patch_type = requests.patch_type(request.headers.get("Content-Type", ""), resource)
        if patch_type is PatchType.APPLY and not options.text("fieldManager"):
            raise errors.invalid_options("Patch", _NO_FIELD_MANAGER)
        body = await _body(request)
        try:
            current = self._store.get(resource, target.namespace, target.name)
        except errors.NotFound:
            if patch_type is not PatchType.APPLY or target.subresource:
                raise
            return await self._create(request, target, options)
        patched = patches.apply(patch_type, current, body.content, custom=resource.custom)
        patched = strategy.as_update(resource, current, patched, target.subresource)
        patched = _with_name_of_path(target, patched)
        warnings = _warnings(resource, patched, body, options)
        updated = self._store.update(
            resource, patched, subresource=target.subresource, dry_run=options.dry_run
        )
        return self._answer(request, resource, updated, warnings=warnings)

    async def _delete(
        self, request: web.Request, target: Target, options: Options
    ) -> web.StreamResponse:
        how = await _delete_options(request, options)
        deleted = self._delete_object(target.resource, target.namespace, target.name, how)
        if target.resource is PODS or not strategy.is_released(target.resource, deleted):
            return self._answer(request, target.resource, deleted)
        return _json(_deleted_status(target.resource, deleted))

    async def _delete_collection(
        self, request: web.Request, target: Target, options: Options
    ) -> web.StreamResponse:
        how = await _delete_options(request, options)
        page = self._store.list(
            target.resource,
            namespace=target.namespace,
            selector=options.selector(target.resource),
        )
        deleted = [
            self._delete_object(
                target.resource,
                object_["metadata"].get("namespace", ""),
                object_["metadata"]["name"],
                how,
            )
            for object_ in page.items
        ]
        metadata: Object = {"resourceVersion": str(self._store.resource_version)}
        return _json(self._view(request, target.resource).many(deleted, metadata))

    def _delete_object(
        self, resource: Resource, namespace: str, name: str, how: "_DeleteOptions"
    ) -> Object:
        return self._store.delete(
            resource,
            namespace,
            name,
            propagation=how.propagation,
            uid=how.uid,
            resource_version=how.resource_version,
            grace_period_s=how.grace_period_s,
            dry_run=how.dry_run,
        )

    async def _get_scale(
        self, request: web.Request, target: Target, options: Options
    ) -> web.StreamResponse:
        object_ = self._store.get(target.resource, target.namespace, target.name)
        return _json(scale.of(target.resource, object_))

    async def _scale(
        self, request: web.Request, target: Target, options: Options
    ) -> web.StreamResponse:
        resource = target.resource
        content = (await _body(request)).content
        object_ = self._store.get(resource, target.namespace, target.name)
        if request.method == "PATCH":
            kind = requests.patch_type(request.headers.get("Content-Type", ""), resource)
            content = patches.apply(kind, scale.of(resource, object_), content, custom=True)
        changed = scale.applied(resource, object_, content)
        updated = self._store.update(resource, changed, dry_run=options.dry_run)
        return _json(scale.of(resource, updated))

    # Forms of the answers

    def _view(self, request: web.Request, resource: Resource) -> tables.View:
        accept = ",".join(request.headers.getall("Accept", ()))
        include = request.query.get("includeObject", "Metadata")
        return tables.View(resource, tables.form(accept), self._now, include)

    def _answer(
        self,
        request: web.Request,
        resource: Resource,
        object_: Object,
        *,
        status: int = 200,
        warnings: list[str] | None = None,
    ) -> web.Response:
        response = _json(self._view(request, resource).one(object_), status=status)
        for warning in warnings or ():
            text = warning.replace("\\", "\\\\").replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{text}"')
        return response


class _DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The DeleteOptions of a request. A client sends them in the body or in the query."""

    propagation: str = "Background"
    grace_period_s: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


async def _delete_options(request: web.Request, options: Options) -> _DeleteOptions:
    content = (await _body(request)).content if await request.read() else {}
    if not isinstance(content, dict):
        raise errors.BadRequest("the body must be a DeleteOptions object")
    grace_s = content.get("gracePeriodSeconds", options.number("gracePeriodSeconds"))
    if grace_s is not None and not isinstance(grace_s, int):
        raise errors.BadRequest("gracePeriodSeconds must be an integer")
    preconditions = content.get("preconditions") or {}
    if not isinstance(preconditions, dict):
        raise errors.BadRequest("preconditions must be a map")
    propagation = content.get("propagationPolicy") or options.text("propagationPolicy")
    return _DeleteOptions(
        propagation=propagation or "Background",
        grace_period_s=grace_s,
        uid=preconditions.get("uid") or "",
        resource_version=preconditions.get("resourceVersion") or "",
        dry_run=options.dry_run or requests.is_dry_run(content.get("dryRun"), "Delete"),
    )


async def _body(request: web.Request) -> Body:
    return requests.decode(await request.read(), request.headers.get("Content-Type", ""))


def _with_name_of_path(target: Target, content: Any) -> Object:
    """The object of a request body, with the namespace and name of the request's path.

    Raises: errors.BadRequest when the object has another namespace or name than the path
    """
    if not isinstance(content, dict) or not isinstance(content.get("metadata") or {}, dict):
        raise errors.BadRequest("the body must be an object with metadata")
    metadata = dict(content.get("metadata") or {})
    for field, wanted in (("namespace", target.namespace), ("name", target.name)):
        given = metadata.get(field) or wanted
        if wanted and given != wanted:
            raise errors.BadRequest(
                f"the {field} of the object ({given})"
                f" does not match the {field} on the URL ({wanted})"
            )
        if wanted:
            metadata[field] = wanted
    return {**content, "metadata": metadata}


def _warnings(resource: Resource, object_: Object, body: Body, options: Options) -> list[str]:
    """Warnings about the unknown and the repeated fields of a request body.

    Raises: errors.BadRequest if the client asked for fieldValidation=Strict
    """
    unknown: list[str] = []
    if resource.schema is not None:
        _, unknown = schemas.prune(resource.schema, object_, root=True)
    return requests.check_strictness(resource, unknown, body.duplicates, options.field_validation)


def _deleted_status(resource: Resource, deleted: Object) -> Object:
    metadata = deleted["metadata"]
    details = errors.details(resource, metadata["name"]) | {"uid": metadata["uid"]}
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
    return {**head, "status": "Success", "details": details}


def _json(content: Object, *, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(content), status=status, content_type="application/json"
    )
