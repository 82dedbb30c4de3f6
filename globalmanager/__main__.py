"""Entry point of the GlobalManager. It reads the settings and runs `app` until SIGTERM or SIGINT.

The exit status is 0 after SIGTERM or SIGINT, 2 when a setting is wrong, and 1 after any other
failure. After a failure, one line on stderr says why the process ended.
"""

import asyncio
import os
import signal
import sys

from edgeai.errors import EdgeAIError, SettingsError
from edgeai.extras import required
from edgeai.open_files import allow_open_files

with required("globalmanager", "manager"):
    import uvloop

    from common import logs
    from common.lean_imports import import_aiohttp, import_websockets
    from common.settings import load
    from globalmanager.settings import Settings

OPEN_FILES = 65_536  # sessions, streams of relays, and requests


def main() -> None:
    allow_open_files(OPEN_FILES)
    try:
        settings = load(
            Settings,
            prog="globalmanager",
            argv=sys.argv[1:],
            env=os.environ,
            description="Keeps job resources in Kubernetes as declared, and their edge nodes.",
        )
        logs.configure("globalmanager", level=settings.log_level)
        uvloop.run(_run(settings))
    except* SettingsError as group:
        _exit(group, 2)
    except* (EdgeAIError, OSError) as group:
        _exit(group, 1)


def _exit(group: BaseExceptionGroup[BaseException], status: int) -> None:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    sys.stderr.write(f"globalmanager: {error}\n")
    sys.exit(status)


async def _run(settings: Settings) -> None:
    with required("globalmanager", "manager"):
        import_aiohttp()
        import_websockets()
        from globalmanager import app

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await app.run(settings, stop)


if __name__ == "__main__":
    main()
