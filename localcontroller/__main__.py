"""Starts a LocalController: `python -m localcontroller --help`.

Exit codes: 0 stopped by a signal; 1 an unexpected error; 2 a setting is wrong; 3 the state
directory cannot be used; 4 the credential files are lost, and a restarted container gets new ones.
"""

import asyncio
import os
import sys

from edgeai.errors import SettingsError, StateError
from edgeai.extras import required
from edgeai.open_files import allow_open_files

with required("localcontroller", "edge"):
    from common import logs
    from common.lean_imports import import_aiohttp, import_websockets
    from common.settings import load
    from localcontroller.link.credentials import CredentialLost
    from localcontroller.settings import Settings, check

OPEN_FILES = 4096  # 1024 streams of the relay, 512 connections of each API, and some
DESCRIPTION = "Holds the tasks of one edge node and reports its workers to the GlobalManager."


def main() -> None:
    """Run until SIGTERM or SIGINT. An error that a user can repair is one line on stderr."""
    allow_open_files(OPEN_FILES)
    try:
        settings = load(
            Settings,
            prog="localcontroller",
            argv=sys.argv[1:],
            env=os.environ,
            description=DESCRIPTION,
        )
        check(settings)
        logs.configure("localcontroller", level=settings.log_level)
        with logs.bind(node=settings.node_name):
            _run(settings)
    except SettingsError as error:
        _exit(2, error)
    except StateError as error:
        _exit(3, error)
    except CredentialLost as error:
        _exit(4, error)


def _run(settings: Settings) -> None:
    """Raises: SettingsError, StateError, CredentialLost"""
    with required("localcontroller", "edge"):
        if settings.pods_api:  # else no HTTP client is needed, which takes 9 MiB
            import_aiohttp()
        import_websockets()
        from localcontroller.app import RestartNeeded, run_until_signalled

    os.umask(0o077)  # what this process writes is for this process
    try:
        asyncio.run(run_until_signalled(settings))
    except RestartNeeded:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _exit(code: int, error: Exception) -> None:
    sys.stderr.write(f"localcontroller: {error}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
