"""The first content behind a URL: the client for it is imported while the event loop goes on."""

import subprocess
import sys

import pytest

PROCESS = """
import asyncio
import sys
import threading

from localcontroller.hooks.content_sources import ContentRequest, ContentSources
from localcontroller.hooks.dataset import SourceFactory
from localcontroller.hooks.sources import (
    DEFAULT_TIMEOUTS,
    SourceError,
    SourceOptions,
    SourceSpec,
    SourceThreads,
)


class Imports:
    def find_spec(self, name, path, target=None):
        if name in ("aiohttp", "obstore"):
            is_main = threading.current_thread() is threading.main_thread()
            print(name, "on the event loop" if is_main else "on a thread")


async def dataset(url):
    threads = SourceThreads(1, DEFAULT_TIMEOUTS)
    await SourceFactory(SourceOptions(), threads, DEFAULT_TIMEOUTS).create("n", SourceSpec(url))


async def model(url):
    threads = SourceThreads(1, DEFAULT_TIMEOUTS)
    sources = ContentSources(SourceOptions(), None, threads, DEFAULT_TIMEOUTS)
    request = ContentRequest("models.edgeai.io/n/m", "uid", "worker", url, "")
    try:
        async with sources.opened(request):
            pass
    except SourceError:
        pass  # S3 without keys


sys.meta_path.insert(0, Imports())
asyncio.run({command}("{url}"))
"""


@pytest.mark.parametrize("command", ["dataset", "model"])
@pytest.mark.parametrize(
    ("url", "client"), [("http://h.test/a.csv", "aiohttp"), ("s3://b/a.csv", "obstore")]
)
def test_the_client_is_imported_on_a_thread(command: str, url: str, client: str) -> None:
    code = PROCESS.replace("{command}", command).replace("{url}", url)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [f"{client} on a thread"]
