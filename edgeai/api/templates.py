"""The pod template as users write it, and the check of a given template.

`pods` completes the templates.
"""

from typing import Annotated, Any

import msgspec

from edgeai.api.resources import Object
from edgeai.api.schemas import kubernetes
from edgeai.api.specs import NonEmpty, parse

Template = Annotated[dict[str, Any], kubernetes("PodTemplateSpec")]


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
