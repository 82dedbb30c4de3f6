"""The parts of kubernetes_asyncio that `transport` uses: credentials, configuration, connections.

The usual import of the package loads a typed API, a dynamic client and 700 model classes, which
this process does not use. They cost 36 MiB of memory and a third of the start time. So this module
leaves the packages around the used modules empty. Code in this process that needs more of the
library must import the library before this module. `plugin` runs the exec plugin of a kubeconfig in
place of the library.
"""

import importlib
import importlib.util
import sys
import types
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kubernetes_asyncio import config
    from kubernetes_asyncio.client import ApiClient, Configuration

__all__ = ["ApiClient", "Configuration", "config"]

_ROOT: Final = "kubernetes_asyncio"
_CLIENT: Final = f"{_ROOT}.client"
_MODELS: Final = f"{_CLIENT}.models"


def _load() -> None:
    for name in (_ROOT, _CLIENT, _MODELS):
        _add_without_running(name)
    # The library's other modules expect these names in the package `client`.
    client = sys.modules[_CLIENT]
    for module, name in (("configuration", "Configuration"), ("api_client", "ApiClient")):
        setattr(client, name, getattr(importlib.import_module(f"{_CLIENT}.{module}"), name))


def _add_without_running(name: str) -> None:
    """Add a package whose modules can be imported but whose __init__ never runs."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"{name} is not installed", name=name)
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, package)


if not TYPE_CHECKING:
    if _ROOT not in sys.modules:
        _load()
    client: types.ModuleType = sys.modules[_CLIENT]
    ApiClient, Configuration = client.ApiClient, client.Configuration
    config = importlib.import_module(f"{_ROOT}.config")
    # The library knows no other way to say how an exec plugin is run.
    plugin = importlib.import_module("edgeai.kube.plugin")
    importlib.import_module(f"{_ROOT}.config.kube_config").ExecProvider = plugin.Plugin
