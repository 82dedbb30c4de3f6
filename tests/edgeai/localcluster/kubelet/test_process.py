"""One container's process group, and waiting for its end."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from edgeai.localcluster.kubelet.launch import Launch
from edgeai.localcluster.kubelet.process import ContainerProcess, Reaper
from tests.support.waiting import PATIENCE_S


async def test_who_is_cancelled_as_the_output_ends_does_not_go_on(tmp_path: Path) -> None:
    """Else a probe whose container ends meanwhile runs for ever, and its pod never goes."""
    script = "sleep 60 & exit 0"  # whose output ends only when its group is killed
    launch = Launch(executable="/bin/sh", argv=("sh", "-c", script), env={}, cwd=str(tmp_path))
    with contextlib.closing(Reaper(tmp_path)) as reaper:
        process = ContainerProcess(launch, reaper, lambda _: None)
        try:
            waiting = asyncio.create_task(process.wait())
            process._drained.add_done_callback(lambda _: waiting.cancel())
            with pytest.raises(asyncio.CancelledError):
                async with asyncio.timeout(PATIENCE_S):
                    await waiting
            assert waiting.cancelled()
        finally:
            process.close()
