"""The OpenAPI documents that kubectl reads for create, apply, replace and explain.

Pure. The document of a custom resource has its whole schema, that of a built-in kind only the
metadata. The API does not use these documents to check objects.
"""

import hashlib
from collections.abc import Iterable

import msgspec

from edgeai.localcluster.objects.resources import Object, Resource

V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
V2_DOCUMENT = b"\x0a\x032.0"
"""The OpenAPI version 2 document: `swagger: "2.0"` without schemas. kubectl reads this document for
a `kind: List` and checks no kind that the document lacks. The API then checks each item."""
_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_METADATA_SCHEMA = {
    "type": "object",
    "description": "Metadata that all objects have.",
    "x-kubernetes-preserve-unknown-fields": True,
}
_TOP_FIELDS = {
    "apiVersion": {"type": "string", "description": "The versioned schema of this object."},
    "kind": {"type": "string", "description": "The resource that this object represents."},
}
_WRITE_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
    for name in ("dryRun", "fieldManager", "fieldValidation")
]


def index(resources: Iterable[Resource]) -> Object:
    """The URLs of the documents, one for each group and version.

    Each URL has a hash of its document, so that a client knows when its cached copy is old.
    """
    members = tuple(resources)
    paths = dict.fromkeys(_path(resource) for resource in members)
    return {
        "paths": {
            path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={_hash(members, path)}"}
            for path in paths
        }
    }


def document(resources: Iterable[Resource], path: str) -> Object | None:
    """Args: path: `api/v1` or `apis/<group>/<version>`. Returns: None if no resource has these"""
    members = [resource for resource in resources if _path(resource) == path]
    if not members:
        return None
    operations: Object = {}
    for resource in members:
        operations |= _operations(resource)
    definitions = {_name(resource): _schema(resource) for resource in members}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.32.0"},
        "paths": operations,
        "components": {"schemas": {_METADATA: _METADATA_SCHEMA, **definitions}},
    }


def _path(resource: Resource) -> str:
    root = "apis" if resource.group else "api"
    return f"{root}/{resource.group_version}"


def _hash(resources: tuple[Resource, ...], path: str) -> str:
    text = msgspec.json.encode(document(resources, path))
    return hashlib.sha256(text).hexdigest()[:32]


def _name(resource: Resource) -> str:
    """The name of a schema, as Kubernetes forms it: reversed group, version, kind."""
    reversed_group = ".".join(reversed((resource.group or "core.api.k8s.io").split(".")))
    return f"{reversed_group}.{resource.version}.{resource.kind}"


def _schema(resource: Resource) -> Object:
    schema = resource.schema or {"x-kubernetes-preserve-unknown-fields": True}
    properties = _TOP_FIELDS | (schema.get("properties") or {})
    properties["metadata"] = {
        "description": "Standard object metadata.",
        "allOf": [{"$ref": f"#/components/schemas/{_METADATA}"}],
        "default": {},
    }
    return schema | {
        "type": "object",
        "properties": properties,
        "x-kubernetes-group-version-kind": [resource.group_version_kind],
    }


def _operations(resource: Resource) -> Object:
    """The paths of one resource. Clients read the kind and the allowed parameters here."""
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    collection = f"/{_path(resource)}{scope}/{resource.plural}"
    operation = {
        "parameters": _WRITE_PARAMETERS,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-group-version-kind": resource.group_version_kind,
    }
    return {
        collection: {"post": operation},
        f"{collection}/{{name}}": {"put": operation, "patch": operation},
    }
