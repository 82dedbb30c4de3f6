"""Parses HTTP requests: the resource, the options, the body.

Pure. Its errors (BadRequest, NotFound, UnsupportedMediaType) name the expected value.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import unquote

import msgspec

from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.patches import PatchType
from edgeai.localcluster.objects.resources import Resource
from edgeai.localcluster.objects.store import Registry

_NO_SUCH_PATH = "the server could not find the requested resource"
_ALSO_JSON = ("", "application/octet-stream", "text/plain", PatchType.APPLY)
PROTOBUF = "application/vnd.kubernetes.protobuf"
_NO_PROTOBUF = (
    "the local cluster reads JSON, not protobuf: add --dry-run=client -o yaml to your"
    " kubectl create, and pipe what it prints into kubectl apply -f -"
)
_OF_NAMESPACES = ("status", "finalize")


class Target(msgspec.Struct, frozen=True):
    """What the path of a request names. `name` is empty for a whole collection."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def target(registry: Registry, raw_path: str) -> Target:
    """Parse the path of a request: a percent-encoded `/api/v1/…` or `/apis/<group>/<version>/…`.

    Raises: errors.NotFound when the API serves no resource of that group, version and plural
    """
    match [unquote(step) for step in raw_path.strip("/").split("/")]:
        case ["api", version, *steps]:
            group = ""
        case ["apis", group, version, *steps]:
            pass
        case _:
            raise errors.NotFound(_NO_SUCH_PATH)
    match steps:
        # namespaces/<name>/status names the namespace itself.
        case ["namespaces", namespace, plural, *rest] if rest or plural not in _OF_NAMESPACES:
            steps = [plural, *rest]
        case _:
            namespace = ""
    plural, name, subresource, *rest = [*steps, "", "", ""][: max(len(steps), 3)]
    resource = registry.find(group, version, plural)
    if resource is None or rest or (namespace and not resource.namespaced):
        raise errors.NotFound(_NO_SUCH_PATH)
    return Target(resource, namespace, name, subresource)


Natural = Annotated[int, msgspec.Meta(ge=0)]


class Query(msgspec.Struct, frozen=True, rename="camel"):
    """The query parameters of a request. Unknown and empty parameters are ignored."""

    watch: bool = False
    allow_watch_bookmarks: bool = False
    send_initial_events: bool = False
    resource_version: Natural | None = None
    timeout_seconds: Natural | None = None
    label_selector: str = ""
    field_selector: str = ""
    limit: Natural = 0
    continue_: str = msgspec.field(default="", name="continue")
    include_object: str = "Metadata"
    container: str = ""
    follow: bool = False
    previous: bool = False
    tail_lines: Natural | None = None
    timestamps: bool = False
    stdin: bool = False
    dry_run: str = ""
    field_manager: str = ""
    field_validation: Literal["Ignore", "Warn", "Strict"] = "Warn"
    """How strictly the API checks unknown fields."""
    grace_period_seconds: Natural | None = None
    propagation_policy: str = ""


def query(parameters: Mapping[str, str]) -> Query:
    """Raises: errors.BadRequest"""
    texts = {name: text for name, text in parameters.items() if text}
    try:
        return msgspec.convert(texts, Query, strict=False)
    except msgspec.ValidationError as error:
        raise errors.BadRequest(f"query parameters: {error}") from error


def is_dry_run(value: Any, verb: str) -> bool:
    """Whether `value`, the `dryRun` of a request, asks for a dry run.

    Raises: errors.Invalid for a value other than All
    """
    if value in (None, "", []):
        return False
    if value in ("All", ["All"]):
        return True
    raise errors.invalid_options(verb, errors.unsupported("dryRun", value, ("All",)))


def decode(body: bytes, content_type: str) -> Any:
    """Decode a request body, which is JSON, also that of a server-side apply.

    Raises: errors.BadRequest, errors.UnsupportedMediaType
    """
    media_type = content_type.partition(";")[0].strip().lower()
    if media_type == PROTOBUF:
        raise errors.UnsupportedMediaType(_NO_PROTOBUF)
    is_json = media_type.startswith("application/") and media_type.endswith("json")
    if is_json or media_type in _ALSO_JSON:
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise errors.BadRequest(f"the body is not valid JSON: {error}") from error
    raise errors.UnsupportedMediaType(
        f'the body of the request was in an unknown format - "{media_type}";'
        " accepted: application/json"
    )


def patch_type(content_type: str, resource: Resource) -> PatchType:
    """The patch format that a Content-Type header names.

    Raises: errors.UnsupportedMediaType, also for a strategic merge patch of a custom resource
    """
    media_type = content_type.partition(";")[0].strip().lower()
    types = [kind for kind in PatchType if not (resource.custom and kind is PatchType.STRATEGIC)]
    if media_type not in types:
        raise errors.UnsupportedMediaType(
            f'the patch was in an unknown format - "{media_type}"; accepted: {", ".join(types)}'
        )
    return PatchType(media_type)
