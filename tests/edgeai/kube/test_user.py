"""What only a person's commands ask of an API server."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web

from edgeai.kube import errors
from edgeai.kube.user import About, UserClient, Version
from tests.globalmanager.scripted_api import Answer, ScriptedApi
from tests.support.kubeconfig import write_kubeconfig

DATE = "Mon, 23 Nov 2026 18:00:00 GMT"


@pytest.fixture
async def client(scripted: ScriptedApi, tmp_path: Path) -> AsyncIterator[UserClient]:
    path = write_kubeconfig(tmp_path / "of-a-user", scripted.url)
    async with await UserClient.from_kubeconfig(path) as client:
        yield client


def tells(body: str, date: str) -> Answer:
    async def answer(_request: web.Request) -> web.StreamResponse:
        return web.Response(text=body, headers={"Date": date})

    return answer


@pytest.mark.parametrize(
    ("version", "found"),
    [
        ("v1.29.3-gke.1282000", Version(1, 29)),
        ("v1.20.2", Version(1, 20)),
        ("v0.0.0-master+$Format:%H$", Version(0, 0)),
        ("of my own", None),
    ],
)
async def test_an_api_server_tells_its_version_and_its_clock(
    scripted: ScriptedApi, client: UserClient, version: str, found: Version | None
) -> None:
    scripted.others = [tells(f'{{"gitVersion": "{version}"}}', DATE)]
    assert await client.about() == About(found, datetime(2026, 11, 23, 18, tzinfo=UTC))


@pytest.mark.parametrize("date", ["", "tomorrow", "Mon, 99 Nov 2026 18:00:00 GMT"])
async def test_a_clock_that_cannot_be_read_is_none(
    scripted: ScriptedApi, client: UserClient, date: str
) -> None:
    scripted.others = [tells('{"gitVersion": "v1.34.1"}', date)]
    assert await client.about() == About(Version(1, 34), None)


async def test_what_is_no_api_server_is_named(scripted: ScriptedApi, client: UserClient) -> None:
    scripted.others = [tells("<html>", DATE)]
    with pytest.raises(errors.Malformed):
        await client.about()
