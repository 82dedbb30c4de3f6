"""The parts of kubernetes_asyncio that `transport` uses: credentials, configuration, connections.

Importing the package the usual way loads its typed API, dynamic client and 700 model classes, which
nothing here uses: 36 MiB resident and a third of the start. So the packages around the used modules
stay empty. Whoever needs more of the library in this process must import it before this module.
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
    # What the rest of the library expects to find in the package `client`.
    client = sys.modules[_CLIENT]
    for module, name in (("configuration", "Configuration"), ("api_client", "ApiClient")):
        setattr(client, name, getattr(importlib.import_module(f"{_CLIENT}.{module}"), name))


def _add_without_running(name: str) -> None:
    """A package whose modules can be imported, and whose __init__ never runs."""
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
