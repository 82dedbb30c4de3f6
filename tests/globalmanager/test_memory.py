"""A GlobalManager without sessions takes little memory, for it loads little of its client."""

import subprocess
import sys
from pathlib import Path

from tests.bench import manager_memory

MOST_MIB = 80


async def test_a_manager_without_sessions_takes_no_more_than_it_may(tmp_path: Path) -> None:
    assert await manager_memory.resident_kib(tmp_path) / 1024 <= MOST_MIB


def test_the_typed_api_of_the_kubernetes_client_is_not_loaded() -> None:
    code = (
        "import sys, globalmanager.__main__\n"
        "of_client = ('kubernetes_asyncio.client.api.', 'kubernetes_asyncio.client.models.')\n"
        "print(sum(name.startswith(of_client) for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "0", done.stderr
