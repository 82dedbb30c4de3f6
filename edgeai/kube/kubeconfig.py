"""Finds common mistakes in a kubeconfig. kubernetes_asyncio would report them as missing keys."""

from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from edgeai.errors import SettingsError

_MADE_BY_KUBECTL: Final = "`kubectl config view --raw` shows a whole file"
_USE_CONTEXT: Final = "choose one with `kubectl config use-context`"


def check(path: Path) -> None:
    """Raises: SettingsError, which names the file and its fault"""
    source = f"kubeconfig {path}"
    if path.exists() and not path.is_file():
        raise SettingsError(source, "is no file but a directory or a pipe; name a file")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            source, f"cannot be read: {error.strerror}; name another with --kubeconfig"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())
        raise SettingsError(source, f"is not YAML: {problem}") from error
    if not isinstance(content, dict):
        raise SettingsError(source, "is empty or no YAML mapping")
    for field in ("clusters", "contexts", "current-context"):
        if not content.get(field):
            remedy = _USE_CONTEXT if field == "current-context" else _MADE_BY_KUBECTL
            raise SettingsError(source, f"{field} is missing or empty; {remedy}")
    _check_context(source, content)


def _check_context(source: str, content: dict[str, Any]) -> None:
    name = content["current-context"]
    context = _named(content["contexts"], name)
    if context is None:
        raise SettingsError(source, f"current-context {name!r} is not among its contexts")
    names = context.get("context") or {}
    cluster_name, user_name = names.get("cluster"), names.get("user")
    cluster = _named(content["clusters"], cluster_name)
    if cluster is None:
        raise SettingsError(source, f"context {name!r} names no cluster of the file")
    if not (cluster.get("cluster") or {}).get("server"):
        raise SettingsError(source, f"cluster {cluster_name!r} has no server")
    _check_server(source, cluster["cluster"]["server"])
    if user_name and _named(content.get("users") or (), user_name) is None:
        raise SettingsError(source, f"user {user_name!r} of context {name!r} is not among users")


def _check_server(source: str, server: Any) -> None:
    if not str(server).startswith(("https://", "http://")):
        problem = f"server {server!r} is no http or https URL; write it as https://HOST:PORT"
        raise SettingsError(source, problem)
    try:
        is_complete = bool(urlsplit(server).hostname) and urlsplit(server).port != 0
    except ValueError:
        is_complete = False
    if not is_complete:
        problem = f"server {server!r} has no valid host and port; write it as https://HOST:PORT"
        raise SettingsError(source, problem)


def _named(entries: Any, name: Any) -> dict[str, Any] | None:
    matches = (entry for entry in entries if isinstance(entry, dict) and entry.get("name") == name)
    return next(matches, None)
