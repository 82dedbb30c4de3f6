"""A GlobalManager without sessions takes little memory."""

from pathlib import Path

from tests.bench import manager_memory

MOST_MIB = 80


async def test_a_manager_without_sessions_takes_no_more_than_it_may(tmp_path: Path) -> None:
    assert await manager_memory.resident_kib(tmp_path) / 1024 <= MOST_MIB
