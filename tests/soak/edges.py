"""Several LocalControllers in one process, each with a ledger and a worker API of its own.

    python -m tests.soak.edges DIRECTORY GLOBAL_MANAGER PORT…

One node for each PORT of its worker API: its name is `node_name` of its number, and its directory
below DIRECTORY has its token. Runs until SIGTERM.
"""

import asyncio
import signal
import sys
from pathlib import Path

from common import logs
from localcontroller.app import run
from localcontroller.settings import Settings
from tests.bench.samples import node_name, token_of


def settings_of(number: int, directory: Path, global_manager: str, port: int) -> Settings:
    own = directory / node_name(number)
    own.mkdir(exist_ok=True)
    token_file = own / "token"
    token_file.touch(mode=0o600)
    token_file.write_text(token_of(node_name(number)))
    return Settings(
        node_name=node_name(number),
        global_manager=global_manager,
        edge_plaintext="allow",
        token_file=token_file,
        state_dir=own / "state",
        worker_address=f"127.0.0.1:{port}",
        status_address="127.0.0.1:0",
        reconnect_max_s=5.0,
    )


async def serve(directory: Path, global_manager: str, ports: list[int]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with asyncio.TaskGroup() as group:
        for number, port in enumerate(ports):
            settings = settings_of(number, directory, global_manager, port)
            group.create_task(run(settings, stop), name=settings.node_name)


if __name__ == "__main__":
    logs.configure("localcontroller", level="warning")
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2], [int(port) for port in sys.argv[3:]]))
