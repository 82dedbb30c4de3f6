"""A kind of the tests' own: namespaced, with subresources, printer columns and a strict schema."""

import copy
from typing import Any, Final

Object = dict[str, Any]

_SPEC: Final[Object] = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1},
        "replicas": {"type": "integer", "default": 1},
        "color": {"type": "string", "enum": ["red", "green"], "description": "Its paint."},
        "code": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 4},
        "parts": {
            "type": "array",
            "maxItems": 2,
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "weight": {"type": "number", "default": 1.5},
                },
            },
        },
        "share": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "note": {"type": "string", "nullable": True},
        "tags": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}
_STATUS: Final[Object] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_COLUMNS: Final = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {
        "name": "Ready",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
    },
]


def widget_crd(
    group: str, *, plural: str = "widgets", kind: str = "Widget", **version: Any
) -> Object:
    """Args: version: what its only version has instead of or besides the usual"""
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": copy.deepcopy(_SPEC), "status": _STATUS},
    }
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    served = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
        "additionalPrinterColumns": _COLUMNS,
        **version,
    }
    names = {"plural": plural, "kind": kind, "shortNames": [f"{plural[:2]}x"]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }
