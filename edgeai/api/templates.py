"""The pod template as users write it: its schema in a CRD, and the check of a given template.

`pods` completes the templates.
"""

from typing import Annotated, Any, Final

import msgspec

from edgeai.api.resources import Object
from edgeai.api.specs import NonEmpty, parse

_KEEP_UNKNOWN: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TEXTS: Final = {"type": "array", "nullable": True, "items": {"type": "string"}}
_ENV_SCHEMA: Final = {
    **_KEEP_UNKNOWN,
    "properties": {"value": {"type": "string", "nullable": True}},
}
# The schema describes only some fields of a container: the fields in which YAML easily reads a
# number or a boolean instead of a text. So the API server refuses a wrong field, by name, when the
# user creates the job. Without the schema, the API server would refuse the pod later.
_CONTAINER_SCHEMA: Final = {
    **_KEEP_UNKNOWN,
    "properties": {
        "command": _TEXTS,
        "args": _TEXTS,
        "env": {"type": "array", "nullable": True, "items": _ENV_SCHEMA},
    },
}
_TEMPLATE_SCHEMA: Final = {
    **_KEEP_UNKNOWN,
    "description": "pod template of the worker, as in a Deployment",
    "required": ["spec"],
    "properties": {
        "spec": {
            **_KEEP_UNKNOWN,
            "required": ["containers"],
            "properties": {
                "containers": {"type": "array", "minItems": 1, "items": _CONTAINER_SCHEMA},
                "initContainers": {
                    "type": "array",
                    "nullable": True,
                    "items": _CONTAINER_SCHEMA,
                },
            },
        },
    },
}
Template = Annotated[dict[str, Any], msgspec.Meta(extra_json_schema=_TEMPLATE_SCHEMA)]


class _Named(msgspec.Struct):
    name: NonEmpty


class _EnvVar(_Named):
    value: str | None = None


class _Mount(msgspec.Struct, rename="camel"):
    mount_path: NonEmpty


class _Container(msgspec.Struct, rename="camel"):
    name: NonEmpty
    image: NonEmpty
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[_EnvVar] | None = None
    volume_mounts: list[_Mount] | None = None


class _Toleration(msgspec.Struct):
    key: str | None = None


class PodSpecShape(msgspec.Struct, rename="camel"):
    containers: Annotated[list[_Container], msgspec.Meta(min_length=1)]
    init_containers: list[_Named] | None = None
    volumes: list[_Named] | None = None
    node_name: str | None = None
    tolerations: list[_Toleration] | None = None


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class TemplateShape(msgspec.Struct):
    """The fields of a pod template that `pods.build` uses. The API server checks all other
    fields.
    """

    spec: PodSpecShape
    metadata: _Metadata | None = None


def check(template: Object, path: str) -> TemplateShape:
    """The fields of the template that `pods.build` uses.

    Args: path: path of the template in the job, for example "spec.worker"
    Raises: InvalidSpec unless `pods.build` can make a pod template of it
    """
    return parse(template, TemplateShape, path)
