"""The part of a pod that plans, the status and the console read.

A tenant decides how large a pod is: a template may have 30,000 environment variables, and the pods
of a job all have them. So the decoder skips over every field that nobody reads, and what is left of
one pod has a limit. Source of the fields: PodSpec and PodStatus of Kubernetes 1.34.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from edgeai.api.resources import PODS, Object, ResourceType
from edgeai.kube.objects import Form

MAX_POD_BYTES: Final = 16 * 1024
"""Largest part of one pod as JSON of which nothing is cut off. Two containers have 3 KB."""
_MAX_ENTRIES: Final = 32  # of each list or map in a pod that is cut
_MAX_NAME_CHARS: Final = 253  # of an object, as the API server checks it
_MAX_CHARS: Final = 1024  # of each text in a pod that is cut
_OWN: Final = ("edgeai.io/", "kubeflow.org/", "sedna.io/", "kubernetes.io/", "alibabacloud.com/")
"""Parts of the labels and annotations that a cut keeps first."""

READ_VARIABLES: Final = frozenset({"WORLD_SIZE", "PET_NNODES"})
"""Environment variables of existing pods that plans read."""
_MARKS: Final = tuple(f'"{name}"'.encode() for name in READ_VARIABLES)

_ABSENT: Final = msgspec.Raw(b"")
_EMPTY: Final = msgspec.Raw(b"{}")
_Unset = msgspec.UnsetType
_Fields = dict[str, Any]


class _Part(msgspec.Struct, rename="camel", omit_defaults=True):
    """A part of a pod. A field that a document does not have is missing in the result, too."""


class _Metadata(_Part):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[_Fields] | None = None


class _Address(_Part):
    host: str = ""


class _Handler(_Part):
    """Where a probe asks. The Pod Security Standards limit the host."""

    http_get: _Address | None = None
    tcp_socket: _Address | None = None


class _Hooks(_Part):
    post_start: _Handler | None = None
    pre_stop: _Handler | None = None


class _Port(_Part):
    name: str = ""
    container_port: int = 0
    host_port: int = 0


class _Variable(_Part):
    name: str = ""
    value: str | None = None


class _Container(_Part):
    name: str = ""
    image: str = ""
    restart_policy: str = ""
    ports: list[_Port] | None = None
    security_context: _Fields | None = None
    liveness_probe: _Handler | None = None
    readiness_probe: _Handler | None = None
    startup_probe: _Handler | None = None
    lifecycle: _Hooks | None = None
    env: msgspec.Raw = _ABSENT


class _Source(_Part):
    """What a volume of the type configMap or secret needs."""

    name: str = ""
    secret_name: str = ""
    optional: bool | None = None


class _Spec(_Part):
    node_name: str = ""
    restart_policy: str = ""
    scheduler_name: str = ""
    priority_class_name: str = ""
    active_deadline_seconds: int | None = None
    scheduling_gates: list[_Fields] | None = None
    readiness_gates: list[_Fields] | None = None
    host_network: bool = False
    host_pid: bool = msgspec.field(default=False, name="hostPID")
    host_ipc: bool = msgspec.field(default=False, name="hostIPC")
    os: _Fields | None = None
    security_context: _Fields | None = None
    volumes: list[dict[str, msgspec.Raw]] | None = None
    containers: list[_Container] | _Unset = msgspec.UNSET
    init_containers: list[_Container] | None = None
    ephemeral_containers: list[_Container] | None = None


class _State(_Part):
    """One container in the status of a pod."""

    name: str = ""
    ready: bool | None = None
    started: bool | None = None
    restart_count: int | None = None
    image: str = ""
    state: _Fields | None = None
    last_state: _Fields | None = None


class _Status(_Part):
    phase: str = ""
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")
    pod_ip: str = msgspec.field(default="", name="podIP")
    start_time: str | None = None
    conditions: list[_Fields] | None = None
    container_statuses: list[_State] | None = None
    init_container_statuses: list[_State] | None = None
    ephemeral_container_statuses: list[_State] | None = None


class _Pod(_Part):
    api_version: str = ""
    kind: str = ""
    metadata: _Metadata | _Unset = msgspec.UNSET
    spec: _Spec | _Unset = msgspec.UNSET
    status: _Status | str | _Unset = msgspec.UNSET
    """A text in the Status that answers a deletion."""


_pods: Final = msgspec.json.Decoder(_Pod)
_sources: Final = msgspec.json.Decoder(_Source | None)
_variables: Final = msgspec.json.Decoder(list[_Variable] | None)


def pod_part(document: bytes) -> Object:
    """The part of a pod that is read, in the form of the API: a dict that lacks the other fields.

    Args: document: the pod as JSON; what the API answers instead of a pod, for example a Status, is
        read the same way
    Raises: msgspec.DecodeError, UnicodeDecodeError, RecursionError
    """
    pod = _pods.decode(document)
    if isinstance(pod.spec, _Spec):
        _reduce(pod.spec)
    part: Object = msgspec.to_builtins(pod, enc_hook=msgspec.json.decode)
    if len(document) > MAX_POD_BYTES and len(msgspec.json.encode(part)) > MAX_POD_BYTES:
        part = _cut(part)
    return part


def _reduce(spec: _Spec) -> None:
    """Shorten what the decoder has left as JSON text: the environment and the volumes."""
    for containers in (spec.containers, spec.init_containers, spec.ephemeral_containers):
        for container in containers or ():
            container.env = _read_variables(container.env)
    # Each pod has a projected volume for its token, and every Pod Security Standard permits them.
    spec.volumes = [volume for volume in spec.volumes or () if "projected" not in volume] or None
    for volume in spec.volumes or ():
        for key in volume.keys() - {"name"}:
            is_named = key in ("configMap", "secret")
            volume[key] = _name_only(volume[key]) if is_named else _EMPTY  # the key is the type


def _name_only(source: msgspec.Raw) -> msgspec.Raw:
    part = _sources.decode(source) or _Source()
    part.name, part.secret_name = (name[:_MAX_NAME_CHARS] for name in (part.name, part.secret_name))
    return msgspec.Raw(msgspec.json.encode(part))


def _read_variables(env: msgspec.Raw) -> msgspec.Raw:
    text = bytes(env)
    if not any(mark in text for mark in _MARKS):
        return _ABSENT
    variables = [one for one in _variables.decode(text) or () if one.name in READ_VARIABLES]
    return msgspec.Raw(msgspec.json.encode(variables)) if variables else _ABSENT


def _cut(value: Any) -> Any:
    """The value with short texts, and with the first entries of each list and map."""
    if isinstance(value, str):
        return value[:_MAX_CHARS]
    if isinstance(value, list):
        return [_cut(item) for item in value[:_MAX_ENTRIES]]
    if isinstance(value, dict):
        entries = sorted(value.items(), key=lambda entry: not _is_own(entry[0]))
        return {key: _cut(item) for key, item in entries[:_MAX_ENTRIES]}
    return value


def _is_own(key: str) -> bool:
    return any(part in key for part in _OWN)


FORMS: Final[Mapping[ResourceType, Form]] = {PODS: pod_part}
"""Type -> decodes what the engine reads of an object."""
