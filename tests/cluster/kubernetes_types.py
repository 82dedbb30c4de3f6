"""edgeai/api/kubernetes.json: types of Kubernetes for our definitions, from its OpenAPI documents.

    python -m tests.cluster.kubernetes_types      # asks the newest Kubernetes, and writes the file

The types have no descriptions and no enumerations, and require only what edgeai needs: they refuse
what a Go client cannot decode, and nothing else.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from edgeai.api.resources import Object
from edgeai.api.schemas import KUBERNETES
from edgeai.api.status import TIME
from tests.cluster import binaries
from tests.cluster.controlplane import ControlPlane
from tests.support.client import Client

_DOCUMENTS: Final = ("/openapi/v3/api/v1", "/openapi/v3/apis/autoscaling/v2")
_ROOTS: Final = ("PodTemplateSpec", "MetricSpec", "HorizontalPodAutoscalerBehavior")
_INT32: Final = {"minimum": -(2**31), "maximum": 2**31 - 1}
# At most three digits of an exponent: Go needs gigabytes for ten.
_SUFFIX: Final = "[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,3}"
_LEAVES: Final[Mapping[str, Object]] = {
    # A text or any number: people write `cpu: 0.5`. No type says that, so the keywords exclude
    # objects, lists and booleans.
    "Quantity": {
        "x-kubernetes-preserve-unknown-fields": True,
        "pattern": f"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)({_SUFFIX})?$",
        "minProperties": 1,
        "maxProperties": 0,
        "minItems": 1,
        "maxItems": 0,
        "not": {"enum": [True, False]},
    },
    "IntOrString": {"x-kubernetes-int-or-string": True, **_INT32},
    "Time": {"type": "string", **TIME},
    "FieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
_NEEDS: Final[Mapping[str, Object]] = {
    "PodTemplateSpec": {"required": ["spec"]},
    "PodSpec": {"required": ["containers"]},
}


def types(client: Client) -> dict[str, Object]:
    """Name -> schema of each type that _ROOTS need. A `$ref` is a name."""
    documents = [client.get(path)["components"]["schemas"] for path in _DOCUMENTS]
    known = {_name(path): schema for schemas in documents for path, schema in schemas.items()}
    made: dict[str, Object] = {}
    names = list(_ROOTS)
    while names:
        name = names.pop()
        if name not in made:
            made[name] = _LEAVES.get(name) or _reduced(known[name]) | _NEEDS.get(name, {})
            names += _references(made[name])
    made["PodSpec"]["properties"]["containers"]["minItems"] = 1
    return dict(sorted(made.items()))


def _name(path: str) -> str:
    """Of "#/components/schemas/io.k8s.api.core.v1.PodSpec": "PodSpec"."""
    return path.rpartition(".")[2]


def _reduced(schema: Object) -> Object:
    """A schema with its type alone."""
    if "allOf" in schema:
        return _reduced(schema["allOf"][0])
    if "$ref" in schema:
        return {"$ref": _name(schema["$ref"])}
    reduced: Object = {"type": schema["type"]}
    if schema.get("format") == "int32":
        reduced |= _INT32
    for key in ("items", "additionalProperties"):
        if key in schema:
            reduced[key] = _reduced(schema[key])
    if "properties" in schema:
        reduced["properties"] = {
            name: _reduced(inner) for name, inner in schema["properties"].items()
        }
    return reduced


def _references(schema: Any) -> list[str]:
    if not isinstance(schema, dict):
        return []
    inner = [name for value in schema.values() for name in _references(value)]
    return [schema["$ref"], *inner] if isinstance(schema.get("$ref"), str) else inner


def text(client: Client) -> str:
    """The content of the file: a line for each type."""
    lines = [
        f"{json.dumps(name)}:{json.dumps(schema, separators=(',', ':'))}"
        for name, schema in types(client).items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        plane = ControlPlane(binaries.obtain(), Path(directory))
        with plane.running(with_controllers=False):
            KUBERNETES.write_text(text(plane.client))
