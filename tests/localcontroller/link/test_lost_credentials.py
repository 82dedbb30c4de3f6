"""A LocalController whose mounted credential disappears or is no longer rotated.

Real processes, a real TLS server, real files. A restarted edgecore does this to the volumes of a
running pod: the directory is removed, or keeps a token that has expired.
"""

import asyncio
import base64
import json
import shutil
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from common.wire import AUDIENCE
from localcontroller.app import lost_credential
from localcontroller.http_server import HttpServer
from localcontroller.ledger.ledger import Ledger
from localcontroller.link.credentials import CredentialLost, Credentials
from localcontroller.link.endpoint import Addresses, Endpoint
from localcontroller.link.link import Link
from localcontroller.metrics import Metrics
from localcontroller.rest import StatusApi
from tests.localcontroller.builders import TIMING, WORKER, desired, key
from tests.localcontroller.cloud import Cloud, running_cloud
from tests.localcontroller.link.test_link import quick_delays
from tests.localcontroller.test_process import Controller, running
from tests.support.certificates import Authority
from tests.support.waiting import PATIENCE_S, async_eventually

LOST: Final = 4  # exit code
WAITING: Final = "waiting for the credential of this node"


def token(expires_in_s: float, subject: str = "node", **claims: Any) -> str:
    """A JSON Web Token like those that the kubelet mounts, with an invalid signature."""
    claims = {"exp": int(time.time() + expires_in_s), "sub": subject, **claims}
    parts = ({"alg": "RS256"}, claims, {"signature": "none"})
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts
    )


class Mount:
    """The directory with the token and the CA of the GlobalManager, as mounted into a pod."""

    def __init__(self, directory: Path, authority: Authority) -> None:
        self.directory = directory
        self.token_file = directory / "token"
        self.ca_file = directory / "ca.crt"
        self._ca = authority.certificate.read_bytes()

    def fill(self, token: str) -> None:
        self.directory.mkdir(exist_ok=True)
        self.ca_file.write_bytes(self._ca)
        self.token_file.write_text(token)

    def remove(self) -> None:
        shutil.rmtree(self.directory)

    @property
    def flags(self) -> tuple[str, ...]:
        return (
            *("--token-file", str(self.token_file), "--ca-file", str(self.ca_file)),
            *("--credential-check-s", "0.05", "--edge-plaintext", "refuse"),
        )


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("keys"))


@pytest.fixture
async def cloud(authority: Authority) -> AsyncIterator[Cloud]:
    certificate, key_file = authority.issue(
        "server", alternative="IP:127.0.0.1", usage="serverAuth"
    )
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key_file)
    async with running_cloud(tls) as cloud:
        cloud.desired = {key(): desired()}
        yield cloud


@pytest.fixture
def mount(tmp_path: Path, authority: Authority) -> Mount:
    mount = Mount(tmp_path / "mounted", authority)
    mount.fill(token(expires_in_s=3600))
    return mount


def flags(cloud: Cloud, mount: Mount, *, lost_s: float) -> tuple[str, ...]:
    return ("--global-manager", cloud.url, *mount.flags, "--credential-lost-s", str(lost_s))


async def end_of(controller: Controller) -> tuple[int, str]:
    """Wait for the end. Returns: exit code, and the line on stderr that is no log line"""
    code = await asyncio.wait_for(controller.process.wait(), PATIENCE_S)
    line = await async_eventually("the last line on stderr", controller.stderr_text)
    return code, line


async def test_without_its_mount_a_process_goes_on_with_the_credential_in_memory(
    state_dir: Path, cloud: Cloud, mount: Mount
) -> None:
    async with running(state_dir, *flags(cloud, mount, lost_s=600)) as controller:
        await cloud.until_synced()
        mount.remove()
        cloud.cut()
        await cloud.until_synced(2)
        assert await controller.post_message(3) == 200
        await cloud.until_reported(WORKER, seen=3)
        assert (await controller.probe("/healthz"))[0] == 200
    presented = {request["Authorization"] for request in cloud.requests}
    assert len(presented) == 1  # the token from before
    assert "Traceback" not in controller.log


async def test_a_mount_that_stays_lost_ends_the_process(
    state_dir: Path, cloud: Cloud, mount: Mount
) -> None:
    """A restarted container gets the files again."""
    async with running(state_dir, *flags(cloud, mount, lost_s=0.5)) as controller:
        await cloud.until_synced()
        mount.remove()
        code, line = await end_of(controller)
    assert code == LOST
    assert str(mount.directory) in line
    assert "No such file" in line
    assert "restart" in line
    assert "Traceback" not in controller.log


async def test_a_mount_that_comes_back_in_time_does_not_end_the_process(
    state_dir: Path, cloud: Cloud, mount: Mount
) -> None:
    async with running(state_dir, *flags(cloud, mount, lost_s=600)) as controller:
        await cloud.until_synced()
        mount.remove()
        await async_eventually(
            "the warning", lambda: controller.logged("credential on disk cannot be used")
        )
        mount.fill(token(expires_in_s=3600, subject="renewed"))
        await async_eventually(
            "the end of the problem",
            lambda: controller.logged("credential on disk can be used again"),
        )
        await async_eventually(
            "the new token", lambda: len({r["Authorization"] for r in cloud.requests}) == 2
        )
        await cloud.until_synced(2)


async def test_a_frozen_token_that_is_rejected_ends_the_process(
    state_dir: Path, cloud: Cloud, mount: Mount
) -> None:
    mount.fill(token(expires_in_s=-60))
    cloud.rejects = True
    async with running(state_dir, *flags(cloud, mount, lost_s=0.5)) as controller:
        code, line = await end_of(controller)
    assert code == LOST
    assert f"token file {mount.token_file}" in line
    assert "expired" in line


async def test_an_expired_token_that_is_accepted_does_not_end_the_process(
    state_dir: Path, cloud: Cloud, mount: Mount
) -> None:
    """The GlobalManager accepts it, so the clock of this node is wrong."""
    mount.fill(token(expires_in_s=-60))
    async with running(state_dir, *flags(cloud, mount, lost_s=0.2)) as controller:
        for sessions in range(1, 12):  # each at least 0.05 s after the one before
            await cloud.until_synced(sessions)
            cloud.cut()
        await cloud.until_synced(12)
        assert await controller.post_message(3) == 200
        await cloud.until_reported(WORKER, seen=3)


async def test_a_static_token_that_is_rejected_does_not_end_the_process(
    state_dir: Path, cloud: Cloud, mount: Mount
) -> None:
    """A restart would bring the same token; only a person can replace it."""
    mount.fill("a-secret-of-this-node")
    cloud.rejects = True
    async with running(state_dir, *flags(cloud, mount, lost_s=0.2)) as controller:
        await async_eventually("15 handshakes", lambda: len(cloud.requests) >= 15)
        cloud.rejects = False
        await cloud.until_synced()
        assert controller.process.returncode is None


async def test_without_the_cloud_a_lost_mount_does_not_end_the_process(
    state_dir: Path, cloud: Cloud, mount: Mount
) -> None:
    """Offline, a stopped container could not start again, and workers could report to nobody."""
    async with running(state_dir, *flags(cloud, mount, lost_s=0.2)) as controller:
        await cloud.until_synced()
        await cloud.stop()
        mount.remove()
        await async_eventually(
            "15 failed dials", lambda: len(controller.logged("no session with GlobalManager")) >= 15
        )
        assert await controller.post_message(3) == 200
        await cloud.start()
        code, _ = await end_of(controller)
    assert code == LOST


async def test_files_that_were_never_there_are_waited_for(
    state_dir: Path, cloud: Cloud, mount: Mount
) -> None:
    """edgecore starts a pod without its ConfigMap: the volume is empty, and filled 90 s later. The
    link looks often, though it dials seldom.
    """
    mount.remove()
    mount.directory.mkdir()
    seldom = ("--reconnect-min-s", "1000", "--reconnect-max-s", "1000")
    async with running(state_dir, *flags(cloud, mount, lost_s=0.2), *seldom) as controller:
        await async_eventually("the reason", lambda: controller.logged(WAITING))
        status, text = await controller.probe("/readyz")
        assert status == 503
        assert f"token file {mount.token_file}: No such file" in text
        assert (await controller.probe("/healthz"))[0] == 200
        mount.token_file.write_text(token(expires_in_s=3600))
        await async_eventually("the next reason", lambda: len(controller.logged(WAITING)) == 2)
        assert f"CA file {mount.ca_file}" in (await controller.probe("/readyz"))[1]
        mount.fill(token(expires_in_s=3600))
        await cloud.until_synced()
        assert (await controller.probe("/readyz"))[0] == 200
    assert len(controller.logged(WAITING)) == 2  # once for each reason


# ---- the token of another pod -------------------------------------------------------------------


def token_of_another_pod(**claims: Any) -> str:
    """What edgecore may put into the volume of a pod while it is offline."""
    bound = {"namespace": "shop", "pod": {"name": "till-7d9f"}, "serviceaccount": {"name": "till"}}
    return token(
        3600,
        "system:serviceaccount:shop:till",
        **{"aud": ["https://kubernetes.default.svc"], "kubernetes.io": bound, **claims},
    )


def token_of_this_pod() -> str:
    return token(3600, "system:serviceaccount:edgeai-system:localcontroller", aud=[AUDIENCE])


async def test_the_token_of_another_pod_is_never_presented_and_readyz_says_whose_it_is(
    state_dir: Path, cloud: Cloud, mount: Mount
) -> None:
    foreign = token_of_another_pod()
    mount.fill(foreign)
    async with running(state_dir, *flags(cloud, mount, lost_s=600)) as controller:
        await async_eventually("the reason", lambda: controller.logged(WAITING))
        status, text = await controller.probe("/readyz")
        assert status == 503
        assert "shop/till (pod till-7d9f)" in text
        assert str(mount.token_file) in text
        assert (await controller.probe("/healthz"))[0] == 200
        mount.fill(token_of_this_pod())
        await cloud.until_synced()
        assert (await controller.probe("/readyz"))[0] == 200
    assert not any(foreign in str(request) for request in cloud.requests)
    assert foreign not in controller.log
    assert foreign not in text


async def test_a_session_outlives_the_token_of_another_pod(
    state_dir: Path, cloud: Cloud, mount: Mount
) -> None:
    mount.fill(token_of_this_pod())
    foreign = token_of_another_pod()
    async with running(state_dir, *flags(cloud, mount, lost_s=600)) as controller:
        await cloud.until_synced()
        mount.fill(foreign)
        await async_eventually(
            "the warning", lambda: controller.logged("credential on disk cannot be used")
        )
        cloud.cut()
        await cloud.until_synced(2)
        assert (await controller.probe("/readyz"))[0] == 200
    assert len({request["Authorization"] for request in cloud.requests}) == 1


async def test_a_rejected_credential_beside_the_token_of_another_pod_is_not_ready(
    state_dir: Path, cloud: Cloud, mount: Mount
) -> None:
    mount.fill(token_of_this_pod())
    async with running(state_dir, *flags(cloud, mount, lost_s=600)) as controller:
        await cloud.until_synced()
        mount.fill(token_of_another_pod())
        cloud.rejects = True
        cloud.cut()

        async def tells() -> bool:
            status, text = await controller.probe("/readyz")
            return status == 503 and "shop/till (pod till-7d9f)" in text

        await async_eventually("the reason at /readyz", tells)


@pytest.mark.parametrize("has_begun", [True, False], ids=["after a session", "from the start"])
async def test_the_token_of_another_pod_that_stays_ends_the_process(
    state_dir: Path, cloud: Cloud, mount: Mount, *, has_begun: bool
) -> None:
    """A restarted container gets the right one."""
    mount.fill(token_of_this_pod() if has_begun else token_of_another_pod())
    async with running(state_dir, *flags(cloud, mount, lost_s=0.5)) as controller:
        if has_begun:
            await cloud.until_synced()
            mount.fill(token_of_another_pod())
        code, line = await end_of(controller)
    assert code == LOST
    assert "shop/till (pod till-7d9f)" in line
    assert "restart" in line
    assert token_of_another_pod() not in controller.log


async def test_without_the_cloud_the_token_of_another_pod_does_not_end_the_process(
    state_dir: Path, cloud: Cloud, mount: Mount
) -> None:
    mount.fill(token_of_another_pod())
    await cloud.stop()
    ended: list[int] = []

    async def end(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(1)
        writer.close()

    nobody = await asyncio.start_server(end, "127.0.0.1", cloud.port)
    async with running(state_dir, *flags(cloud, mount, lost_s=0.1)) as controller:
        await async_eventually("ten dials that get no answer", lambda: len(ended) >= 10)
        assert controller.process.returncode is None
        nobody.close()
        await nobody.wait_closed()
        await cloud.start()
        code, _ = await end_of(controller)
    assert code == LOST


async def test_liveness_fails_once_the_credential_is_lost(
    ledger: Ledger, cloud: Cloud, mount: Mount
) -> None:
    credentials = Credentials(token_file=mount.token_file, ca_file=mount.ca_file)
    endpoint = Endpoint(addresses=Addresses([cloud.url]), node="edge-1", credentials=credentials)
    metrics = Metrics()
    link = Link(
        endpoint,
        ledger,
        metrics,
        timing=TIMING,
        delays=quick_delays(),
        credential_check_s=0.02,
        credential_lost_s=0.1,
    )
    server = HttpServer(StatusApi(ledger, link, metrics).handle, metrics, api="status")
    host, port = await server.start("127.0.0.1", 0)
    url = f"http://{host}:{port}/healthz"
    running_link = asyncio.create_task(link.run(), name="link")
    async with aiohttp.ClientSession() as session:
        await cloud.until_synced()
        async with session.get(url) as response:
            assert response.status == 200
        mount.remove()
        with pytest.raises(CredentialLost):
            await asyncio.wait_for(running_link, PATIENCE_S)
        async with session.get(url) as response:
            assert response.status == 503
            assert str(mount.token_file) in await response.text()
    await server.stop()


def test_the_end_for_a_lost_credential_is_one_sentence_whatever_else_fails() -> None:
    lost = CredentialLost("token file token: gone")
    link = ExceptionGroup("link", [ValueError("a"), lost])
    assert lost_credential(ExceptionGroup("parts", [OSError("relay"), link])) is lost
    assert lost_credential(ExceptionGroup("parts", [OSError("relay")])) is None
