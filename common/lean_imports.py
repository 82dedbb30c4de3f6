"""Imports of aiohttp and websockets that take less memory, and the CAs of the system.

A process loads the CAs once, when it first uses them: they take 1 to 3 MiB.
"""

import os
import ssl
import sys
from functools import cache
from types import ModuleType
from typing import Final

_LEAN: Final = {
    "SSL_CERT_FILE": os.devnull,  # aiohttp would load the CAs
    "SSL_CERT_DIR": os.devnull,
    "FROZENLIST_NO_EXTENSIONS": "1",  # nothing else in an image needs libstdc++, 1 MiB
}


def import_aiohttp() -> None:
    """Call this before all other imports of aiohttp.

    aiohttp's own TLS context then trusts no server: a session needs `system_tls` or another one.
    """
    import mimetypes

    mimetypes.knownfiles.clear()  # no process serves files by the system's table of types, 0.4 MiB
    before = {name: os.environ.get(name) for name in _LEAN}
    os.environ.update(_LEAN)
    try:
        import aiohttp  # noqa: F401
    finally:
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value


def import_websockets() -> None:
    """Call this before all other imports of websockets.

    websockets.version imports importlib.metadata, 0.7 MiB, and uses it in no release.
    """
    name = "importlib.metadata"
    if name in sys.modules:
        return
    sys.modules[name] = ModuleType(name)
    try:
        import websockets.version  # noqa: F401
    finally:
        del sys.modules[name]


@cache
def system_tls() -> ssl.SSLContext:
    """A TLS context for HTTP clients, with the CAs of the system."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(("http/1.1",))
    return context
