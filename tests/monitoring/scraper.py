"""A real Prometheus that scrapes managers on loopback, and is asked about expressions."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.monitoring.prometheus import needed
from tests.support.ports import free_port
from tests.support.waiting import async_eventually


class Prometheus:
    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self.url = self._url = f"http://127.0.0.1:{port}"
        self._session = session

    async def is_ready(self) -> bool:
        with contextlib.suppress(aiohttp.ClientError):
            async with self._session.get(f"{self._url}/-/ready") as answer:
                return answer.status == 200
        return False

    async def ask(self, expression: str) -> list[dict[str, Any]]:
        """The series that the expression gives now."""
        url = f"{self._url}/api/v1/query"
        async with self._session.get(url, params={"query": expression}) as answer:
            body = await answer.json()
        assert body["status"] == "success", body
        found: list[dict[str, Any]] = body["data"]["result"]
        return found

    async def scrapes(self, count: int) -> None:
        """Wait until each target was scraped successfully so many times."""

        async def check() -> bool:
            series = await self.ask("sum_over_time(up[10m])")
            assert series, "nothing was scraped yet"
            return all(float(each["value"][1]) >= count for each in series)

        await async_eventually(f"{count} scrapes", check)


@contextlib.asynccontextmanager
async def scraping(directory: Path, targets: Mapping[str, int]) -> AsyncIterator[Prometheus]:
    """A Prometheus that scrapes these ports of loopback.

    Args: targets: name, which becomes the label `pod`, and port of each manager
    """
    port = free_port()
    config = {
        "global": {"scrape_interval": "250ms", "scrape_timeout": "250ms"},
        "scrape_configs": [
            {
                "job_name": "edgeai",
                "static_configs": [
                    {"targets": [f"127.0.0.1:{each}"], "labels": {"pod": name}}
                    for name, each in targets.items()
                ],
            }
        ],
    }
    file = directory / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    process = await asyncio.create_subprocess_exec(
        needed("prometheus"),
        f"--config.file={file}",
        f"--storage.tsdb.path={directory / 'prometheus'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    )
    try:
        async with aiohttp.ClientSession() as session:
            prometheus = Prometheus(port, session)
            await async_eventually("a ready Prometheus", prometheus.is_ready)
            yield prometheus
    finally:
        process.kill()
        await process.wait()
