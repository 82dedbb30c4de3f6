"""What a LocalController has resident: with a session over TLS, two tasks that report, a Dataset.

A real process of this installation; the cloud's end is the scripted one of the tests, so that
nothing else of edgeai competes for the machine.
"""

import asyncio
import ssl
import tempfile
from pathlib import Path
from typing import Any, Final

from edgeai.ids import Uid
from globalmanager.edge.sessions.cloud_session import Desired
from tests.localcontroller.builders import body, desired, key
from tests.localcontroller.cloud import Cloud, running_cloud
from tests.localcontroller.hooks.world import assign as dataset
from tests.localcontroller.test_process import Controller, running
from tests.support.certificates import Authority
from tests.support.processes import memory_kib

TASKS: Final = ("digits", "faces")
REPORTS: Final = 50  # of each task's worker
DEADLINE_S: Final = 60.0
SETTLED_S: Final = 3.0  # after which nothing is on its way any more


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_measure(Path(directory)))


async def _measure(directory: Path) -> dict[str, Any]:
    file = directory / "samples.csv"
    file.write_text("x,y\n" + "1,2\n" * 10_000)
    frame = dataset(url=str(file))
    certificates = directory / "certificates"
    certificates.mkdir()
    authority = Authority(certificates)
    token = directory / "token"
    token.write_text("token-of-this-node")
    async with running_cloud(_server_tls(authority)) as cloud:
        cloud.desired = {
            key(name): desired(
                uid=f"uid of {name}", body_=body(f"{name}-edge", secret=secret_of(name))
            )
            for name in TASKS
        }
        cloud.desired[frame.key] = Desired(Uid(frame.uid), frame.version, frame.body)
        flags = ("--global-manager", cloud.url, "--edge-plaintext", "refuse")
        files = ("--token-file", str(token), "--ca-file", str(authority.certificate))
        async with running(directory / "state", *flags, *files) as controller:
            await _use(controller, cloud)
            await asyncio.sleep(SETTLED_S)
            kib = memory_kib(controller.process.pid)["VmRSS"]
            return {"resident_mib": round(kib / 1024, 1)}


def secret_of(name: str) -> str:
    return name.ljust(64, "0")


def _server_tls(authority: Authority) -> ssl.SSLContext:
    pair = authority.issue("server", alternative="IP:127.0.0.1", usage="serverAuth")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


async def _use(controller: Controller, cloud: Cloud) -> None:
    """All that a node does in an hour, except for the hour."""
    await cloud.until_synced()
    await cloud.until_reported("faces", numberOfSamples=10_000)
    for seen in range(1, REPORTS + 1):
        for name in TASKS:
            assert (
                await controller.post_message(seen, worker=f"{name}-edge", secret=secret_of(name))
                == 200
            )
    for name in TASKS:
        await cloud.until_reported(f"{name}-edge", seen=REPORTS)
    for path in ("/healthz", "/readyz", "/metrics", "/api/v1/tasks", "/api/v1/workers"):
        assert (await controller.probe(path))[0] == 200
