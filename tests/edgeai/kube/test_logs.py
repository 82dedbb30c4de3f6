"""The log of a container that is silent."""

import asyncio
from contextlib import aclosing

import pytest
from aiohttp import web

from edgeai.api.resources import PODS, ObjectRef
from edgeai.kube import errors
from edgeai.kube.client import KubeClient
from tests.globalmanager.scripted_api import ScriptedApi

POD = ObjectRef(PODS, "default", "a")


async def test_a_silent_container_is_followed_until_it_says_something(
    scripted: ScriptedApi, impatient_client: KubeClient
) -> None:
    """A kubelet sends the headers of its answer with the first line."""

    async def says_late(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(1.0)  # three times the client's deadline
        return web.Response(text="2026-01-01T00:00:01Z hello\n")

    scripted.others = [says_late]
    read = impatient_client.log_lines(POD, container="main", follow=True)
    async with aclosing(read) as lines:
        assert [line async for line in lines] == [b"2026-01-01T00:00:01Z hello"]


async def test_a_log_that_is_only_read_comes_in_time(
    scripted: ScriptedApi, impatient_client: KubeClient
) -> None:
    scripted.others = [scripted.hang()]
    async with aclosing(impatient_client.log_lines(POD, container="main")) as lines:
        with pytest.raises(errors.Silent):
            await anext(lines)
