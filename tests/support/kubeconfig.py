"""Kubeconfigs of test clients."""

import base64
from pathlib import Path
from typing import Any

import yaml


def kubeconfig(server: str, *, token: str = "", ca: Path | None = None) -> dict[str, Any]:
    """Of one user of one cluster. Args: ca: PEM file of the server's CA"""
    cluster = {"server": server}
    if ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca.read_bytes()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token} if token else {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def write_private(path: Path, content: dict[str, Any]) -> Path:
    """YAML that only its owner reads."""
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def write_kubeconfig(path: Path, server: str, token: str = "letmein") -> Path:
    return write_private(path, kubeconfig(server, token=token))
