"""What the console costs: first pages, and many open ones, with hundreds of nodes and jobs.

    python -m tests.bench console

A real API server with its controller manager; jobs change ten times a second, with and without
open pages.
"""

import asyncio
import re
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import aiohttp
import yaml

from tests.bench.manager_memory import settled_kib
from tests.bench.plane import deployed, prepare, running_plane
from tests.bench.samples import NAMESPACE, path_of
from tests.bench.spread import spread
from tests.cluster.controlplane import AUDITED, ControlPlane
from tests.cluster.samples import service
from tests.support.manager import GlobalManager

NODES: Final = 500
JOBS: Final = 1_000
CONSOLES: Final = 50
CHANGES_PER_S: Final = 10
OPEN_S: Final = 30.0
CALM_S: Final = 70.0  # longer than the grace time of a job without contact
FIRST_PAGES: Final = 30
VIEWER: Final = "viewer"
PAGES: Final = (
    *("/", "/jobs", "/nodes", f"/jobs?namespace={NAMESPACE}"),
    f"/jobs/jointinferenceservices.edgeai.io/{NAMESPACE}/job-1",
)


def measure() -> dict[str, Any]:
    """Figures of docs/performance.md, "The console"."""
    users = {AUDITED: "system:masters", VIEWER: "system:masters"}
    with running_plane(users) as (control_plane, directory):
        prepare(control_plane, nodes=NODES)
        _make_jobs(control_plane)
        kubeconfig, viewer = directory / "manager", directory / "viewer"
        control_plane.write_kubeconfig(kubeconfig, user=AUDITED)
        control_plane.write_kubeconfig(viewer, user=VIEWER)
        with deployed(kubeconfig, directory, "--http-auth", "kubernetes").running() as manager:
            token = yaml.safe_load(viewer.read_text())["users"][0]["user"]["token"]
            return asyncio.run(_Bench(control_plane, manager).figures(token))


def _make_jobs(control_plane: ControlPlane) -> None:
    """They wait for Models, so that no pods share the processors with what is measured."""
    jobs = (service(NAMESPACE, name=f"job-{number}") for number in range(JOBS))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(control_plane.client.create, jobs))


class _Bench:
    def __init__(self, control_plane: ControlPlane, manager: GlobalManager) -> None:
        self._control_plane = control_plane
        self._manager = manager
        self._url = f"http://127.0.0.1:{manager.http_port}"

    async def figures(self, token: str) -> dict[str, Any]:
        await asyncio.to_thread(settled_kib, self._manager)
        connector = aiohttp.TCPConnector(limit=0)
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=jar) as browser:
            async with browser.post(f"{self._url}/login", data={"token": token}) as response:
                assert response.status == 200, await response.text()
            figures = {"first_page": await self._first_page(browser)}
            await asyncio.to_thread(self._wait_for_calm)
            before_kib = await asyncio.to_thread(settled_kib, self._manager)
            figures["no_page_open"] = await asyncio.to_thread(self._while_jobs_change)
            async with asyncio.TaskGroup() as group:
                pages = (PAGES[number % len(PAGES)] for number in range(CONSOLES))
                readers = [group.create_task(self._read(browser, page)) for page in pages]
                await asyncio.sleep(2)
                figures["pages_open"] = await asyncio.to_thread(self._while_jobs_change)
                more_kib = self._manager.resident_kib() - before_kib
                for reader in readers:
                    reader.cancel()
            figures["pages_open"]["mib_more"] = round(more_kib / 1024, 1)
            return figures

    async def _first_page(self, browser: aiohttp.ClientSession) -> dict[str, Any]:
        """The overview with all its files, as a browser without a cache loads it."""
        took_ms, sizes = [], []
        for _ in range(FIRST_PAGES):
            began_s = time.perf_counter()
            async with browser.get(f"{self._url}/") as response:
                body = await response.read()
            files = re.findall(rb'(?:src|href)="(/static/[^"]*(?:js|css|svg)\?[^"]*)"', body)
            sizes.append(len(body))
            for file in files:
                async with browser.get(self._url + file.decode()) as response:
                    sizes[-1] += len(await response.read())
            took_ms.append(1000 * (time.perf_counter() - began_s))
        return {"ms": spread(took_ms), "kib": round(max(sizes) / 1024, 1)}

    async def _read(self, browser: aiohttp.ClientSession, page: str) -> None:
        headers = {"Accept": "text/event-stream"}
        timeout = aiohttp.ClientTimeout(total=None)
        async with browser.get(self._url + page, headers=headers, timeout=timeout) as response:
            assert response.status == 200, await response.text()
            while await response.content.readany():
                pass

    def _wait_for_calm(self) -> None:
        """Wait until CALM_S pass without a change of a job. The GlobalManager writes the status of
        each job when it starts, and once more when the grace time of contact is over.
        """
        before = -1
        while (now := self._asked()["patch"]) != before:
            before = now
            time.sleep(CALM_S)

    def _asked(self) -> Counter[str]:
        """How often the GlobalManager has asked for what, by verb; it renews Leases in any case."""
        events = (each for each in self._control_plane.audit() if "objectRef" in each)
        return Counter(e["verb"] for e in events if e["objectRef"]["resource"] != "leases")

    def _while_jobs_change(self) -> dict[str, Any]:
        before, spent_s, began_s = self._asked(), self._manager.processor_s(), time.monotonic()
        self._change_jobs()
        spent_s = self._manager.processor_s() - spent_s
        percent = 100 * spent_s / (time.monotonic() - began_s)
        return {"percent_of_a_core": round(percent, 1), "requests": self._asked() - before}

    def _change_jobs(self) -> None:
        end_s, number = time.monotonic() + OPEN_S, 0
        while time.monotonic() < end_s:
            # The model is missing, too, and the page of the job and the first rows say which it is.
            patch = {"spec": {"edgeWorker": {"model": {"name": f"missing-{number}"}}}}
            self._control_plane.client.patch(f"{path_of()}/job-{10 ** (number % 3)}", patch)
            number += 1
            time.sleep(1 / CHANGES_PER_S)
