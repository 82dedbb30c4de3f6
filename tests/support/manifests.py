"""Manifests of any type."""

from typing import Any

from edgeai.cli.api import Object


def manifest(type_: str, name: str, namespace: str = "", **fields: Any) -> Object:
    """Args: type_: like "apps/v1 Deployment"; namespace: "": none"""
    api_version, kind = type_.split()
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def owned_by(*owners: Object, **reference: Any) -> list[Object]:
    """The ownerReferences of what these objects own."""
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            **reference,
        }
        for owner in owners
    ]
