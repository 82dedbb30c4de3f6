"""The kubeconfig that the client and the command use on this machine."""

import os
from pathlib import Path
from typing import Any, Final

from edgeai.errors import SettingsError
from edgeai.localcluster import process

_HOME: Final = Path(".kube") / "config"


def default_state_dir() -> Path:
    """Where `edgeai up` keeps the local cluster."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "edgeai"


def kubeconfig_of(path: Path | None, state_dir: Path | None) -> Path:
    """The kubeconfig to use: the given one, else $KUBECONFIG, else that of the local cluster in
    `state_dir` if it runs, else ~/.kube/config.

    Raises: SettingsError when $KUBECONFIG names several files, which kubectl would merge
    """
    if path is not None:
        return path
    paths = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if len(paths) > 1:
        problem = f"names {len(paths)} files; name one with --kubeconfig"
        raise SettingsError("environment variable KUBECONFIG", problem)
    if paths:
        return Path(paths[0])
    running = None if state_dir is None else process.running(state_dir.resolve())
    return Path.home() / _HOME if running is None else running.kubeconfig


def namespace_of(kubeconfig: Path, context: str = "") -> str:
    """The namespace of a context, as kubectl takes it; "default" when it names none. Whether the
    file can be used is for the client of the API to say.

    Args: context: "" for the current context
    """
    import yaml  # late: most commands need no namespace, and it loads slowly

    try:
        content: Any = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        contexts = {context["name"]: context["context"] for context in content["contexts"]}
        return str(contexts[context or content["current-context"]].get("namespace") or "default")
    except (OSError, ValueError, yaml.YAMLError, LookupError, TypeError, AttributeError):
        return "default"
