"""A GlobalManager without sessions takes little memory."""

from pathlib import Path

from tests.bench import manager_memory

MOST_MIB = 60  # beside what other versions of Python and of the libraries take


async def test_a_manager_without_sessions_takes_no_more_than_it_may(tmp_path: Path) -> None:
    figures = await manager_memory.figures(tmp_path)
    assert figures["globalmanager_mib"] <= MOST_MIB
