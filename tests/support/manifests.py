"""Manifests of any type, and those that deploy/ has."""

import functools
from pathlib import Path
from typing import Any, Final

import yaml

from edgeai.cli.api import Object

_DEPLOY: Final = Path(__file__).parents[2] / "deploy"


@functools.cache
def definitions() -> list[Object]:
    """All of deploy/chart/definitions. Nobody may change them."""
    files = sorted((_DEPLOY / "chart" / "definitions").glob("*.yaml"))
    return [document for file in files for document in documents(file.read_text())]


@functools.cache
def deployed() -> list[Object]:
    """All of deploy/edgeai.yaml. Nobody may change it."""
    return documents((_DEPLOY / "edgeai.yaml").read_text())


def documents(text: str) -> list[Object]:
    """By libyaml: PyYAML itself takes five times as long, seconds for files of this size."""
    return list(yaml.load_all(text, Loader=yaml.CSafeLoader))


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
