"""The verbs of the API: translates requests to calls of the store, and results to answers.

The rules for objects are in `store` and `strategy`, which controllers and the kubelet use, too.
"""

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from edgeai.localcluster.api import commands, requests, tables
from edgeai.localcluster.api.requests import Query, Target
from edgeai.localcluster.api.streams import stream_log, stream_watch
from edgeai.localcluster.objects import containers, errors, patches, schemas, strategy
from edgeai.localcluster.objects.history import Watch
from edgeai.localcluster.objects.patches import PatchType
from edgeai.localcluster.objects.resources import PODS, Object, Resource, field_value
from edgeai.localcluster.objects.selectors import Selector, parse
from edgeai.localcluster.objects.store import Store
from edgeai.times import Clock

_VERBS = {"POST": "Create", "PUT": "Update", "PATCH": "Patch", "DELETE": "Delete"}
_SCALE = Resource(group="autoscaling", version="v1", plural="scales", kind="Scale")
_NO_FIELD_MANAGER = errors.required("fieldManager", "is required for apply patch")


class Call(NamedTuple):
    request: web.Request
    target: Target
    query: Query

    @property
    def resource(self) -> Resource:
        return self.target.resource

    @property
    def key(self) -> tuple[Resource, str, str]:
        return self.target.resource, self.target.namespace, self.target.name

    @property
    def selector(self) -> Selector:
        """Raises: as selectors.parse"""
        return parse(self.resource, self.query.label_selector, self.query.field_selector)

    async def body(self) -> Any:
        content_type = self.request.headers.get("Content-Type", "")
        return requests.decode(await self.request.read(), content_type)

    def view(self, now: Clock) -> tables.View:
        """The form of the answer. Args: now: for the ages in a Table"""
        accept = ",".join(self.request.headers.getall("Accept", ()))
        return tables.View(self.resource, tables.form(accept), now, self.query.include_object)

    @property
    def is_dry_run(self) -> bool:
        """Raises: errors.Invalid"""
        return requests.is_dry_run(self.query.dry_run, _VERBS.get(self.request.method, "List"))


json_response = partial(web.json_bytes_response, dumps=msgspec.json.encode)
Handler = Callable[[Call], Awaitable[web.StreamResponse]]


class API:
    def __init__(self, store: Store, *, now: Clock, bookmark_interval_s: float) -> None:
        self._store = store
        self._now = now
        self._bookmark_interval_s = bookmark_interval_s
        self.log_source: containers.LogSource | None = None
        self.exec_target: containers.ExecTarget | None = None
        self._collection: dict[str, Handler] = {
            "GET": self._list_or_watch,
            "POST": self._create,
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

    def close(self) -> None:
        for watch in self._store.watches:
            watch.close()

    async def handle(self, request: web.Request, path: str) -> web.StreamResponse:
        """Serve a request for `path`, which begins with /api or /apis and is percent-encoded.

        Raises: errors.APIError
        """
        target = requests.target(self._store.registry, path)
        handler = self._handlers(target).get(request.method)
        if handler is None:
            raise errors.MethodNotAllowed(f"{request.method} is not supported on {path}")
        return await handler(Call(request, target, requests.query(request.query)))

    def _handlers(self, target: Target) -> dict[str, Handler]:
        if not target.name:
            return self._collection
        if not target.subresource:
            return self._object
        if target.subresource not in target.resource.subresources:
            name = f"{target.resource.group_resource}/{target.subresource}"
            raise errors.NotFound(f"the local cluster does not serve {name}")
        return self._subresources[target.subresource]

    # Verbs that read objects

    async def _get(self, call: Call) -> web.StreamResponse:
        return self._answer(call, self._store.get(*call.key))

    async def _list_or_watch(self, call: Call) -> web.StreamResponse:
        if call.query.watch:
            return await self._watch(call)
        page = self._store.list(
            call.resource,
            namespace=call.target.namespace,
            selector=call.selector,
            limit=call.query.limit,
            continue_token=call.query.continue_,
        )
        metadata: Object = {"resourceVersion": str(page.resource_version)}
        if page.continue_token:
            metadata["continue"] = page.continue_token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
        return json_response(call.view(self._now).many(page.items, metadata))

    async def _watch(self, call: Call) -> web.StreamResponse:
        query = call.query
        bookmarks = query.allow_watch_bookmarks
        try:
            watch = self._open_watch(call)
        except errors.Gone as error:  # Clients expect 410 as an event of the stream
            return json_response({"type": "ERROR", "object": error.status()})
        with contextlib.closing(watch):
            return await stream_watch(
                call.request,
                watch,
                call.view(self._now),
                timeout_s=query.timeout_seconds,
                bookmark_interval_s=self._bookmark_interval_s if bookmarks else None,
                mark_initial_end=bookmarks and query.send_initial_events,
            )

    def _open_watch(self, call: Call) -> Watch:
        """Open a watch. A watch without resourceVersion, or from 0, begins with all objects."""
        query = call.query
        return self._store.watch(
            call.resource,
            namespace=call.target.namespace,
            since=None if query.send_initial_events else query.resource_version or None,
            selector=call.selector,
        )

    async def _log(self, call: Call) -> web.StreamResponse:
        names, query = self._container(call), call.query
        if self.log_source is None:
            raise _no_kubelet(call)
        log_query = containers.LogQuery(
            **names,
            follow=query.follow,
            previous=query.previous,
            tail_lines=query.tail_lines,
            timestamps=query.timestamps,
        )
        return await stream_log(call.request, self.log_source(log_query))

    async def _exec(self, call: Call) -> web.StreamResponse:
        names = self._container(call)
        if self.exec_target is None:
            raise _no_kubelet(call)
        query = containers.ContainerQuery(**names)
        return await commands.run(call.request, self.exec_target, query, has_stdin=call.query.stdin)

    def _container(self, call: Call) -> dict[str, Any]:
        """The fields of a ContainerQuery. A pod with one container needs no container name.

        Raises: errors.BadRequest for an unknown name, and if a necessary name is missing
        """
        _, namespace, pod_name = call.key
        pod = self._store.get(PODS, namespace, pod_name)
        spec, name = pod["spec"], call.query.container
        mains = [container["name"] for container in spec["containers"]]
        names = mains + [container["name"] for container in spec.get("initContainers") or []]
        if not name and len(mains) > 1:
            raise errors.BadRequest(
                f"a container name must be specified for pod {pod_name}, choose one of: {mains}"
            )
        name = name or mains[0]
        if name not in names:
            raise errors.BadRequest(
                f"container {name} is not valid for pod {pod_name}, it has: {names}"
            )
        uid = pod["metadata"]["uid"]
        return {"namespace": namespace, "pod": pod_name, "uid": uid, "container": name}

    # Verbs that write objects

    async def _create(self, call: Call) -> web.StreamResponse:
        object_ = _with_name_of_path(call.target, await call.body())
        warnings = _warnings(call, object_)
        object_ = self._store.create(call.resource, object_, dry_run=call.is_dry_run)
        return self._answer(call, object_, status=201, warnings=warnings)

    async def _update(self, call: Call) -> web.StreamResponse:
        return self._replace(call, _with_name_of_path(call.target, await call.body()))

    async def _patch(self, call: Call) -> web.StreamResponse:
        resource, subresource = call.resource, call.target.subresource
        patch_type = requests.patch_type(call.request.headers.get("Content-Type", ""), resource)
        if patch_type is PatchType.APPLY and not call.query.field_manager:
            raise errors.invalid_options("Patch", _NO_FIELD_MANAGER)
        patch = await call.body()
        try:
            current = self._store.get(*call.key)
        except errors.NotFound:
            if patch_type is not PatchType.APPLY or subresource:
                raise
            return await self._create(call)
        patched = patches.apply(patch_type, current, patch, custom=resource.custom)
        patched = strategy.as_update(resource, current, patched, subresource)
        return self._replace(call, _with_name_of_path(call.target, patched))

    def _replace(self, call: Call, object_: Object) -> web.Response:
        warnings = _warnings(call, object_)
        updated = self._store.update(
            call.resource,
            object_,
            subresource=call.target.subresource,
            dry_run=call.is_dry_run,
        )
        return self._answer(call, updated, warnings=warnings)

    async def _delete(self, call: Call) -> web.StreamResponse:
        deleted = self._store.delete(*call.key, **await _delete_options(call))
        if call.resource is PODS or not strategy.is_released(call.resource, deleted):
            return self._answer(call, deleted)
        return json_response(_deletion_status(call.resource, deleted))

    async def _get_scale(self, call: Call) -> web.StreamResponse:
        return json_response(_scale_of(call.resource, self._store.get(*call.key)))

    async def _scale(self, call: Call) -> web.StreamResponse:
        resource = call.resource
        content = await call.body()
        object_ = self._store.get(*call.key)
        if call.request.method == "PATCH":
            kind = requests.patch_type(call.request.headers.get("Content-Type", ""), resource)
            content = patches.apply(kind, _scale_of(resource, object_), content, custom=True)
        scaled = _scaled(resource, object_, content)
        updated = self._store.update(resource, scaled, dry_run=call.is_dry_run)
        return json_response(_scale_of(resource, updated))

    def _answer(
        self, call: Call, object_: Object, *, status: int = 200, warnings: list[str] | None = None
    ) -> web.Response:
        response = json_response(call.view(self._now).one(object_), status=status)
        for warning in warnings or ():
            text = warning.replace("\\", "\\\\").replace('"', '\\"')
            response.headers.add("Warning", f'299 - "{text}"')
        return response


def _scale_of(resource: Resource, object_: Object) -> Object:
    paths = resource.scale
    assert paths  # else the resource has no subresource /scale
    metadata = object_["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status = {
        "replicas": field_value(object_, paths.status_replicas_path) or 0,
        "selector": _selector_text(field_value(object_, paths.label_selector_path)),
    }
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in fields if name in metadata},
        "spec": {"replicas": field_value(object_, paths.spec_replicas_path) or 0},
        "status": {name: value for name, value in status.items() if value is not None},
    }


def _scaled(resource: Resource, object_: Object, scale: Any) -> Object:
    """A copy of the object that has the replicas and the resourceVersion of a Scale.

    Raises: errors.BadRequest for a malformed Scale; errors.Invalid for negative replicas
    """
    spec = scale.get("spec") if isinstance(scale, dict) else None
    replicas = spec.get("replicas", 0) if isinstance(spec, dict) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise errors.BadRequest("Scale: spec.replicas must be an integer")
    if replicas < 0:
        fault = errors.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise errors.Invalid(_SCALE, object_["metadata"]["name"], [fault])
    patch: Any = replicas
    assert resource.scale
    for step in reversed(resource.scale.spec_replicas_path.lstrip(".").split(".")):
        patch = {step: patch}
    metadata = scale.get("metadata")
    if isinstance(metadata, dict) and metadata.get("resourceVersion"):
        patch["metadata"] = {"resourceVersion": metadata["resourceVersion"]}
    scaled: Object = patches.merge(object_, patch)
    return scaled


def _selector_text(value: Any) -> str | None:
    """Args: value: text, or a LabelSelector; other values are no selector"""
    if isinstance(value, dict):
        labels = value.get("matchLabels") or {}
        return ",".join(f"{name}={label}" for name, label in labels.items())
    return value if isinstance(value, str) else None


def _no_kubelet(call: Call) -> errors.NotFound:
    return errors.NotFound(f'nothing in this cluster runs the pod "{call.target.name}"')


async def _delete_options(call: Call) -> dict[str, Any]:
    """The arguments of Store.delete that a client sends in the body or in the query."""
    content = await call.body() if await call.request.read() else {}
    if not isinstance(content, dict):
        raise errors.BadRequest("the body must be a DeleteOptions object")
    grace_s = content.get("gracePeriodSeconds", call.query.grace_period_seconds)
    if grace_s is not None and not isinstance(grace_s, int):
        raise errors.BadRequest("gracePeriodSeconds must be an integer")
    preconditions = content.get("preconditions") or {}
    if not isinstance(preconditions, dict):
        raise errors.BadRequest("preconditions must be a map")
    propagation = content.get("propagationPolicy") or call.query.propagation_policy
    return {
        "propagation": propagation or "Background",
        "grace_period_s": grace_s,
        "uid": preconditions.get("uid") or "",
        "resource_version": preconditions.get("resourceVersion") or "",
        "dry_run": call.is_dry_run or requests.is_dry_run(content.get("dryRun"), "Delete"),
    }


def _with_name_of_path(target: Target, content: Any) -> Object:
    """The object of a request body, with the namespace and name of the request's path.

    Raises: errors.BadRequest when the object has another namespace or name than the path
    """
    if not isinstance(content, dict) or not isinstance(content.get("metadata") or {}, dict):
        raise errors.BadRequest("the body must be an object with metadata")
    metadata = dict(content.get("metadata") or {})
    for field, name in (("namespace", target.namespace), ("name", target.name)):
        value = metadata.get(field) or name
        if name and value != name:
            raise errors.BadRequest(
                f"the {field} of the object ({value})"
                f" does not match the {field} on the URL ({name})"
            )
        if name:
            metadata[field] = name
    return {**content, "metadata": metadata}


def _warnings(call: Call, object_: Object) -> list[str]:
    """Warnings about the unknown fields of an object.

    Raises: errors.BadRequest if the client asked for fieldValidation=Strict
    """
    resource = call.resource
    unknown: list[str] = []
    if resource.schema is not None:
        _, unknown = schemas.prune(resource.schema, object_, root=True)
    faults = [f'unknown field "{field}"' for field in unknown]
    mode = call.query.field_validation
    if faults and mode == "Strict":
        raise errors.undecodable(resource, f"strict decoding error: {', '.join(faults)}")
    return [] if mode == "Ignore" else faults


def _deletion_status(resource: Resource, deleted: Object) -> Object:
    metadata = deleted["metadata"]
    details = errors.details(resource, metadata["name"]) | {"uid": metadata["uid"]}
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
    return {**head, "status": "Success", "details": details}
