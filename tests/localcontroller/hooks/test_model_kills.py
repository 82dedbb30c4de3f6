"""A node that is killed at each step of a delivery ends with whole content, and shows no other."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.localcontroller.hooks.model_world import FileServer, content, sha256
from tests.localcontroller.hooks.server import serving

DATA = content(1_200_000)  # comes in several chunks, and the store syncs each of them


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("digest", "stride"), [("", 1), (sha256(DATA), 4)], ids=["no digest", "digest"]
)
async def test_a_node_killed_at_each_step_ends_right(
    tmp_path: Path, digest: str, stride: int
) -> None:
    files = FileServer(DATA)
    async with serving(files) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.localcontroller.hooks.model_process"),
            *(str(tmp_path), server.url, digest, str(stride)),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0
    first, *killed = [json.loads(line) for line in output.splitlines() if line[:1] == b"{"]
    assert first["steps"] > 15
    assert len(killed) >= first["steps"] // stride
    for node in killed:
        assert node["killed"]["digests"] in ([], [sha256(DATA)]), node
        end = {"digests": [sha256(DATA)], "suffixes": ["", ".model"], "bytes": len(DATA)}
        assert node["end"] == end, node
        if node["is_killed"]:
            _goes_on(files.ranges_of.get(f"/{node['step']}", []), node)
    # Chunks differ from run to run, and so do the last steps.
    assert sum(node["is_killed"] for node in killed) > 0.7 * len(killed)


def _goes_on(ranges: list[str], node: dict[str, Any]) -> None:
    """What was on the disk for sure at the kill does not come again."""
    here = node["killed"]["bytes"]
    if here == len(DATA):
        assert len(ranges) == 1, (ranges, node)
    elif here:
        assert ranges[1:] == [f"bytes={here}-"], (ranges, node)
