"""Parses HTTP requests: the resource, the options, the body.

Pure; `handlers` calls it. Raises errors.BadRequest, NotFound or UnsupportedMediaType with a text
that says what was expected.
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
import yaml

from localcluster.objects import errors
from localcluster.objects.patches import PatchType
from localcluster.objects.registry import Registry
from localcluster.objects.resources import Object, Resource

MAX_YAML_BYTES = 512 << 10
"""YAML is parsed far more slowly than JSON, and the parser blocks the event loop."""

_NO_SUCH_PATH = "the server could not find the requested resource"
_YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml", PatchType.APPLY)
PROTOBUF = "application/vnd.kubernetes.protobuf"
_NO_PROTOBUF = (
    "the local cluster reads JSON and YAML, not protobuf: add --dry-run=client -o yaml to your"
    " kubectl create, and pipe what it prints into kubectl apply -f -"
)
_TRUE = ("true", "True", "1", "t")
_VERBS = {"POST": "Create", "PUT": "Update", "PATCH": "Patch", "DELETE": "Delete"}
_OWN_NAMESPACE_SUBRESOURCES = ("status", "finalize")


class Target(msgspec.Struct, frozen=True):
    """What a path names; without `name` the collection."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target(registry: Registry, raw_path: str) -> Target:
    """Parse a percent-encoded `/api/v1/…` or `/apis/<group>/<version>/…`.

    Raises: errors.NotFound when nothing of that group, version and plural is served there
    """
    root, *steps = [unquote(step) for step in raw_path.strip("/").split("/")]
    if root not in ("api", "apis"):
        raise errors.NotFound(_NO_SUCH_PATH)
    group = steps.pop(0) if root == "apis" and steps else ""
    version = steps.pop(0) if steps else ""
    namespace = ""
    if _is_in_namespace(steps):
        namespace, steps = steps[1], steps[2:]
    plural, name, subresource, *rest = [*steps, "", "", ""][: max(len(steps), 3)]
    resource = registry.find(group, version, plural)
    if resource is None or rest or (namespace and not resource.namespaced):
        raise errors.NotFound(_NO_SUCH_PATH)
    return Target(resource, namespace, name, subresource)


def _is_in_namespace(steps: list[str]) -> bool:
    """Whether the steps are `namespaces/<ns>/pods…`, not `namespaces/<name>/status`."""
    if len(steps) < 3 or steps[0] != "namespaces":
        return False
    return len(steps) > 3 or steps[2] not in _OWN_NAMESPACE_SUBRESOURCES


class Options:
    """The query of a request. Unknown parameters are ignored."""

    def __init__(self, query: Mapping[str, str], method: str) -> None:
        self._query = query
        self._verb = _VERBS.get(method, "List")

    def text(self, name: str) -> str:
        return self._query.get(name, "")

    def flag(self, name: str) -> bool:
        return self._query.get(name, "") in _TRUE

    def number(self, name: str) -> int | None:
        """Raises: errors.BadRequest for anything but a natural number."""
        text = self._query.get(name, "")
        if not text:
            return None
        if not (text.isascii() and text.isdecimal()) or len(text) > 18:
            raise errors.BadRequest(f'{name} must be a number >= 0, not "{text}"')
        return int(text)

    @property
    def dry_run(self) -> bool:
        return is_dry_run(self._query.get("dryRun"), self._verb)

    @property
    def field_validation(self) -> str:
        """Raises: errors.BadRequest."""
        mode = self._query.get("fieldValidation") or "Warn"
        if mode not in ("Ignore", "Warn", "Strict"):
            raise errors.BadRequest(f'fieldValidation "{mode}" is not Ignore, Warn or Strict')
        return mode


def is_dry_run(value: Any, verb: str) -> bool:
    """Raises: errors.Invalid for a value other than All."""
    if value in (None, "", []):
        return False
    if value in ("All", ["All"]):
        return True
    raise errors.invalid_options(verb, errors.unsupported("dryRun", value, ("All",)))


class Body(msgspec.Struct, frozen=True):
    """A decoded request body, and the keys that a map in it repeats."""

    content: Any
    duplicates: list[str]


def decode(body: bytes, content_type: str) -> Body:
    """Read JSON or YAML.

    Raises: errors.BadRequest, errors.TooLarge, errors.UnsupportedMediaType
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == PROTOBUF:
        raise errors.UnsupportedMediaType(_NO_PROTOBUF)
    if media_type in _YAML_TYPES and not body.lstrip().startswith((b"{", b"[")):
        return _decode_yaml(body)
    if media_type in _YAML_TYPES or media_type in ("", "application/octet-stream", "text/plain"):
        return _decode_json(body)
    if media_type.startswith("application/") and media_type.endswith("json"):
        return _decode_json(body)
    raise errors.UnsupportedMediaType(
        f'the body of the request was in an unknown format - "{media_type}";'
        " accepted: application/json, application/yaml"
    )


def patch_type(content_type: str, resource: Resource) -> PatchType:
    """Raises: errors.UnsupportedMediaType, also for a strategic merge of a custom resource"""
    media_type = content_type.partition(";")[0].strip().lower()
    accepted = [kind for kind in PatchType if not (resource.custom and kind is PatchType.STRATEGIC)]
    if media_type not in accepted:
        raise errors.UnsupportedMediaType(
            f'the patch was in an unknown format - "{media_type}"; accepted: {", ".join(accepted)}'
        )
    return PatchType(media_type)


def check_strictness(
    resource: Resource, unknown: list[str], duplicates: list[str], mode: str
) -> list[str]:
    """Warnings about unknown and repeated fields, as `fieldValidation` wants them.

    Raises: errors.BadRequest in Strict mode
    """
    faults = [f'unknown field "{field}"' for field in unknown]
    faults += [f'duplicate field "{field}"' for field in duplicates]
    if not faults or mode == "Ignore":
        return []
    if mode == "Warn":
        return faults
    raise errors.BadRequest(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a'
        f" {resource.kind}: strict decoding error: {', '.join(faults)}"
    )


def _decode_json(body: bytes) -> Body:
    duplicates: list[str] = []

    def build(pairs: list[tuple[str, Any]]) -> Object:
        object_ = dict(pairs)
        if len(object_) < len(pairs):
            names = [name for name, _ in pairs]
            duplicates.extend(sorted({name for name in names if names.count(name) > 1}))
        return object_

    try:
        content = json.loads(body, object_pairs_hook=build, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise errors.BadRequest(f"the body is not valid JSON: {error}") from error
    return Body(content, duplicates)


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _decode_yaml(body: bytes) -> Body:
    if len(body) > MAX_YAML_BYTES:
        raise errors.TooLarge(f"YAML bodies are limited to {MAX_YAML_BYTES} bytes: send JSON")
    duplicates: list[str] = []

    class Loader(_JSONLikeLoader):
        names = duplicates

    try:
        content = yaml.load(body, Loader)  # noqa: S506 - a SafeLoader, further restricted
        # Encoded and decoded as JSON, so that keys are strings and all values have JSON types.
        return Body(msgspec.json.decode(msgspec.json.encode(content)), duplicates)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise errors.BadRequest(f"the body is not valid YAML: {error}") from error


class _JSONLikeLoader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: times stay text, repeated keys are collected.

    Aliases are refused, since a few nested ones expand a short body to megabytes.
    """

    names: list[str] = []

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not accepted")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        mapping = super().construct_mapping(node, deep=True)
        if len(mapping) < len(node.value):
            keys = [key.value for key, _ in node.value]
            self.names.extend(sorted({str(key) for key in keys if keys.count(key) > 1}))
        return mapping
