"""TLS of the edge port on real sockets: who is let in, and what happens when files change."""

import asyncio
import contextlib
import math
import os
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.x509 import load_pem_x509_certificates
from websockets.exceptions import InvalidStatus, WebSocketException

from common import wire
from common.clock import SYSTEM_CLOCK
from edgeai.errors import SettingsError
from globalmanager.edge.door.admission import AdmissionLimits
from globalmanager.edge.door.tls import ServerTls, TlsFiles, server_context
from globalmanager.edge.identity.certificates import CertificateAuthenticator
from tests.globalmanager.edge.door.test_server import GOOD, UPGRADE, raw, read_to_end
from tests.globalmanager.edge.world import A, B, EdgeSide, dial, token
from tests.support.certificates import Authority, Pair
from tests.support.clock import Clock
from tests.support.waiting import async_eventually

QUICKLY_S = 0.05  # between two reviews of a session
RENEWED = ((("commonName", "renewed"),),)
BROKEN = {"empty": b"", "no PEM": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}


class Keys:
    """What the tests of this module need, made once; tests replace copies."""

    def __init__(self, directory: Path) -> None:
        self.ca = Authority(directory)
        self.other_ca = Authority(directory, "other-ca")  # the same subject, another key
        self.server = self.ca.issue("server", alternative="IP:127.0.0.1", usage="serverAuth")
        self.renewed = self.ca.issue(
            "renewed", subject="/CN=renewed", alternative="IP:127.0.0.1", usage="serverAuth"
        )
        issue, self.issued = self.ca.issue, dict[str, Pair]()
        self.issued["A"] = issue("a", alternative=f"DNS:{A}")
        self.issued["B"] = issue("node-b", alternative=f"DNS:{B}")
        self.issued["B of the other CA"] = self.other_ca.issue("b", subject=f"/CN=system:node:{B}")
        self.issued["A as Kubernetes names it"] = issue("k", subject=f"/O=x/CN=system:node:{A}")
        self.issued["A, twice said"] = issue(
            "t", subject=f"/CN=system:node:{A}", alternative=f"DNS:{A},DNS:other-name"
        )
        self.issued["another CA"] = self.other_ca.issue("x", alternative=f"DNS:{A}")
        self.issued["expired"] = issue("e", alternative=f"DNS:{A}", lasts=timedelta(hours=-1))
        self.issued["a server's"] = issue("s", alternative=f"DNS:{A}", usage="serverAuth")
        self.issued["no name"] = issue("n")
        self.issued["CN alone"] = issue("c", subject=f"/CN={A}")
        self.issued["two names"] = issue("2", alternative=f"DNS:{A},DNS:{B}")
        self.issued["CN and name differ"] = issue(
            "d", subject=f"/CN=system:node:{A}", alternative=f"DNS:{B}"
        )
        self.issued["wildcard"] = issue("w", alternative="DNS:*.edge")
        self.issued["no name of a node"] = issue("u", subject="/CN=system:node:Edge_0")
        self.issued["an address"] = issue("i", alternative="IP:127.0.0.1")

    def client(self, name: str = "A") -> ssl.SSLContext:
        """A client with a certificate; "" without one."""
        context = ssl.create_default_context(cafile=self.ca.certificate)
        if name:
            context.load_cert_chain(*self.issued[name])
        return context


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


class Files:
    """The files of a server, replaced as an editor or a Secret volume does it."""

    def __init__(self, directory: Path, keys: Keys) -> None:
        self.tls = TlsFiles(
            certificate=directory / "tls.crt",
            key=directory / "tls.key",
            client_ca=directory / "clients.crt",
        )
        self.directory = directory
        self.renew(keys.server)
        self.trust(keys.ca)

    def renew(self, pair: Pair) -> None:
        self._put(self.tls.certificate, pair.certificate.read_bytes())
        self._put(self.tls.key, pair.key.read_bytes())

    def trust(self, *authorities: Authority) -> None:
        self.write_trust(b"".join(each.certificate.read_bytes() for each in authorities))

    def write_trust(self, content: bytes) -> None:
        assert self.tls.client_ca is not None
        self._put(self.tls.client_ca, content)

    def _put(self, path: Path, content: bytes) -> None:
        new = path.with_suffix(".new")
        new.write_bytes(content)
        os.replace(new, path)


@pytest.fixture
def files(tmp_path: Path, keys: Keys) -> Files:
    return Files(tmp_path, keys)


@contextlib.asynccontextmanager
async def mutual(files: Files, **fields: Any) -> AsyncIterator[EdgeSide]:
    """A world whose nodes show certificates."""
    tls = ServerTls(files.tls)
    authenticator = CertificateAuthenticator(tls, clock=fields.pop("clock", SYSTEM_CLOCK))
    world = EdgeSide(files.directory / "tokens", tls=tls, authenticator=authenticator, **fields)
    async with world.running():
        yield world


@pytest.mark.parametrize("name", ["A", "A as Kubernetes names it", "A, twice said"])
async def test_a_certificate_gives_the_node(files: Files, keys: Keys, name: str) -> None:
    async with mutual(files) as world, world.peer(ssl=keys.client(name)) as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        assert list(world.contacts.by_node()) == [A]
        assert len(world.server.lobby) == 0


async def test_the_day_on_which_a_nodes_certificate_ends_is_known(files: Files, keys: Keys) -> None:
    async with mutual(files) as world, world.peer(ssl=keys.client("A")) as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        (leaf,) = load_pem_x509_certificates(keys.issued["A"].certificate.read_bytes())
        assert world.contacts.certificate_ends_on(A) == leaf.not_valid_after_utc.date()


async def test_the_end_of_the_first_certificate_is_shown(files: Files, keys: Keys) -> None:
    def days(holder: str) -> float:
        name = "edgeai_edge_certificate_expiry_timestamp_seconds"
        return (world.sample(name, holder=holder) - time.time()) / 86400

    async with mutual(files) as world:
        assert days("edge port") == pytest.approx(1.0, abs=0.1)
        assert days("nodes") == math.inf
        async with world.peer(ssl=keys.client("A")) as peer:
            await async_eventually("a synced peer", lambda: peer.is_synced)
            assert days("nodes") == pytest.approx(1.0, abs=0.1)
        longer = keys.ca.issue(
            "longer", alternative="IP:127.0.0.1", usage="serverAuth", lasts=timedelta(days=9)
        )
        files.renew(longer)
        assert days("edge port") == pytest.approx(9.0, abs=0.1)
        chain = longer.certificate.read_bytes() + keys.ca.certificate.read_bytes()
        files.renew(Pair(put(files.directory / "chain.pem", chain), longer.key))
        assert days("edge port") == pytest.approx(2.0, abs=0.1), "the CA ends before the leaf"


def put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


UNNAMED = [
    "",
    "no name",
    "CN alone",
    "two names",
    "CN and name differ",
    "wildcard",
    "no name of a node",
    "an address",
]


@pytest.mark.parametrize("name", UNNAMED)
async def test_a_certificate_without_one_name_gets_401(files: Files, keys: Keys, name: str) -> None:
    async with mutual(files) as world:
        assert await refusal(world, keys.client(name)) == 401
        assert not world.contacts.by_node()


async def test_a_certificate_with_the_name_of_another_node_as_header_gets_401(
    files: Files, keys: Keys
) -> None:
    async with mutual(files) as world:
        reader, writer = await asyncio.open_connection(
            *world.server.address, ssl=keys.client(), server_hostname="127.0.0.1"
        )
        writer.write(UPGRADE.format(path="/", headers=GOOD + f"Edgeai-Node: {B}\r\n").encode())
        assert b" 401 " in await asyncio.wait_for(reader.readline(), 5)
        writer.transport.abort()
        assert not world.contacts.by_node()


async def refusal(world: EdgeSide, client: ssl.SSLContext, **headers: str) -> int:
    """The status that a client was refused with; 0: TLS ended without an answer."""
    try:
        async with dial(world.url, token(A), ssl=client) as websocket:
            await websocket.recv()
    except InvalidStatus as error:
        return error.response.status_code
    except (WebSocketException, OSError):
        return 0
    raise AssertionError("was let in")


BAD_FOR_TLS = {
    "another CA": "verify failed",
    "expired": "certificate has expired",
    "a server's": "purpose",
}


@pytest.mark.parametrize(("name", "reason"), BAD_FOR_TLS.items())
async def test_a_certificate_that_is_not_good_ends_tls(
    files: Files, keys: Keys, name: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with mutual(files) as world:
        assert await refusal(world, keys.client(name)) == 0
        await async_eventually("an empty lobby", lambda: len(world.server.lobby) == 0)
        assert world.sample("edgeai_edge_handshakes_total", outcome="no TLS") == 1
        assert not world.contacts.by_node()
    assert reason in capsys.readouterr().out


async def test_a_resumed_tls_session_is_no_credential(files: Files, keys: Keys) -> None:
    """It would be let in by what was trusted when it began. TLS 1.3 has nothing to resume."""
    client = keys.client()
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    async with mutual(files) as world:
        first, status, _ = await asyncio.to_thread(knock, world, client, None)
        assert status == 101
        _, status, reused = await asyncio.to_thread(knock, world, client, first)
        assert (reused, status) == (True, 401)


async def test_tls_1_3_gives_no_ticket_to_resume_with(files: Files, keys: Keys) -> None:
    client = keys.client()
    client.minimum_version = ssl.TLSVersion.TLSv1_3
    async with mutual(files) as world:
        session, status, _ = await asyncio.to_thread(knock, world, client, None)
        assert status == 101
        assert session is not None
        assert not session.has_ticket


def test_what_the_server_does_not_speak(files: Files) -> None:
    context = server_context(files.tls)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_TICKET
    assert context.num_tickets == 0
    assert context.verify_mode is ssl.CERT_OPTIONAL


def knock(
    world: EdgeSide, client: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[ssl.SSLSession | None, int, bool | None]:
    """TLS session, status of a WebSocket handshake, whether `session` was resumed."""
    host, port = world.server.address
    with (
        socket.create_connection((host, port), timeout=5) as tcp,
        client.wrap_socket(tcp, server_hostname=host, session=session) as tls,
    ):
        tls.sendall(UPGRADE.format(path="/", headers=GOOD).encode())
        status = int(tls.recv(1000).split()[1])
        seen = tls.session, status, tls.session_reused
        with contextlib.suppress(OSError):
            tls.unwrap()  # one that ends without a farewell is not offered again
        return seen


async def test_health_is_answered_without_a_certificate(files: Files, keys: Keys) -> None:
    async with mutual(files) as world:
        reader, writer = await asyncio.open_connection(
            *world.server.address, ssl=keys.client(""), server_hostname="127.0.0.1"
        )
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: gm\r\n\r\n")
        assert b"200 OK" in await asyncio.wait_for(reader.readline(), 5)
        writer.transport.abort()


async def test_tokens_go_over_tls_without_client_certificates(
    files: Files, keys: Keys, tmp_path: Path
) -> None:
    tls = ServerTls(TlsFiles(certificate=files.tls.certificate, key=files.tls.key))
    async with (
        EdgeSide(tmp_path / "tokens", tls=tls).running() as world,
        world.peer(B, ssl=keys.client("")) as peer,
    ):
        await async_eventually("a synced peer", lambda: peer.is_synced)
        assert list(world.contacts.by_node()) == [B]


async def test_plain_http_on_a_port_of_tls_is_cut(files: Files) -> None:
    async with mutual(files) as world, raw(world) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in await read_to_end(reader)
        await async_eventually("an empty lobby", lambda: len(world.server.lobby) == 0)


async def test_half_a_tls_handshake_is_counted_and_cut(files: Files, keys: Keys) -> None:
    limits = AdmissionLimits(unauthenticated_per_address=3, open_s=0.6)
    async with mutual(files, limits=limits) as world:
        async with contextlib.AsyncExitStack() as stack:
            idle = [await stack.enter_async_context(raw(world)) for _ in range(3)]
            await async_eventually(
                "len(world.server.lobby) == 3", lambda: len(world.server.lobby) == 3
            )
            async with raw(world) as (reader, _):
                assert await read_to_end(reader) == b"", "no room in the lobby"
            for reader, _ in idle:
                assert await read_to_end(reader) == b"", "the deadline for the handshake"
        async with world.peer(ssl=keys.client()) as peer:
            await async_eventually("a synced peer", lambda: peer.is_synced)


async def test_tls_handshakes_are_paced(files: Files, keys: Keys) -> None:
    """Two at once, then none for a long time: the third is turned away before any TLS."""
    limits = AdmissionLimits(per_s=0.01, burst=2)
    async with mutual(files, limits=limits) as world:
        for _ in range(2):
            assert await refusal(world, keys.client("")) in (401, 503)
        assert await refusal(world, keys.client("")) == 0
        assert world.sample("edgeai_edge_handshakes_total", outcome="no TLS") == 1


async def test_nodes_begin_tls_beyond_the_rates_of_strangers(files: Files, keys: Keys) -> None:
    limits = AdmissionLimits(per_s=0.01, burst=1, per_address_per_s=0.01, per_address_burst=1)
    async with mutual(files, limits=limits) as world, world.peer(ssl=keys.client("A")) as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        async with world.peer(ssl=keys.client("B")) as other:
            await async_eventually("the other peer synced", lambda: other.is_synced)


async def test_one_address_takes_a_part_of_the_tls_handshakes(files: Files, keys: Keys) -> None:
    limits = AdmissionLimits(per_s=0.01, burst=4, per_address_per_s=0.01, per_address_burst=2)
    async with mutual(files, limits=limits) as world:
        for _ in range(2):
            assert await refusal(world, keys.client("")) == 401
        assert await refusal(world, keys.client("")) == 0
        async with world.peer(ssl=keys.client(), local_addr=("127.0.0.51", 0)) as peer:
            await async_eventually("a synced peer", lambda: peer.is_synced)


async def test_failed_tls_of_strangers_is_one_line_of_the_log(
    files: Files, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    async with mutual(files) as world:
        for _ in range(3):
            assert await refusal(world, keys.client("another CA")) == 0
        await async_eventually(
            "world.sample('edgeai_edge_handshakes_total', outcome='no TLS') == 3",
            lambda: world.sample("edgeai_edge_handshakes_total", outcome="no TLS") == 3,
        )
    assert capsys.readouterr().out.count("TLS handshake failed") == 1


async def test_what_got_no_tls_leaves_no_descriptor(files: Files, keys: Keys) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    limits = AdmissionLimits(open_s=0.4)
    async with mutual(files, limits=limits) as world:
        before = descriptors()
        for _ in range(5):
            async with raw(world) as (reader, writer):  # no TLS
                writer.write(b"GET / HTTP/1.1\r\n\r\n")
                await read_to_end(reader)
            async with raw(world):  # goes away
                pass
            assert await refusal(world, keys.client("another CA")) == 0
            assert await refusal(world, keys.client("")) == 401
        async with raw(world) as (reader, _):  # says nothing
            await read_to_end(reader)
        await async_eventually("descriptors() == before", lambda: descriptors() == before)
        assert len(world.server.lobby) == 0


async def test_stopping_does_not_wait_for_tls(files: Files) -> None:
    async with mutual(files) as world, raw(world) as (reader, _):
        await async_eventually("len(world.server.lobby) == 1", lambda: len(world.server.lobby) == 1)
        await asyncio.wait_for(world.server.stop(), 2)
        assert await read_to_end(reader) == b""


# ---- files that change -------------------------------------------------------------------------


async def subject_of_server(world: EdgeSide, keys: Keys) -> object:
    _, writer = await asyncio.open_connection(*world.server.address, ssl=keys.client(""))
    try:
        return writer.get_extra_info("peercert")["subject"]
    finally:
        writer.transport.abort()


async def reviewed(world: EdgeSide, times: int = 3) -> None:
    """So many reviews have found a credential good, from now on."""

    def good() -> float:
        return world.sample("edgeai_edge_reviews_total", outcome="good")

    wanted = good() + times
    await async_eventually("good() >= wanted", lambda: good() >= wanted)


async def test_a_new_server_certificate_is_for_new_connections_and_ends_no_session(
    files: Files, keys: Keys
) -> None:
    async with mutual(files, review_s=QUICKLY_S) as world, world.peer(ssl=keys.client()) as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        files.renew(keys.renewed)
        assert await subject_of_server(world, keys) == RENEWED
        await reviewed(world)
        assert peer.close_code is None


async def test_broken_new_files_leave_the_old_in_force(
    files: Files, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    async with mutual(files, review_s=QUICKLY_S) as world, world.peer(ssl=keys.client()) as peer:
        await async_eventually("a synced peer", lambda: peer.is_synced)
        for broken in BROKEN.values():
            files.write_trust(broken)
            await reviewed(world)
        files.renew(Pair(keys.renewed.certificate, keys.server.key))  # the key is still to come
        assert await subject_of_server(world, keys) != RENEWED
        await reviewed(world)
        assert peer.close_code is None
        files.trust(keys.ca)
        files.renew(keys.renewed)
        assert await subject_of_server(world, keys) == RENEWED
    assert capsys.readouterr().out.count("TLS files kept as they were before") == 1 + len(BROKEN)


async def test_a_new_ca_lets_its_nodes_in_and_the_old_one_closes_its_sessions(
    files: Files, keys: Keys
) -> None:
    """As a CA is rotated: both for a while, then the new one alone."""
    async with (
        mutual(files, review_s=QUICKLY_S) as world,
        world.peer(A, ssl=keys.client()) as old,
    ):
        await async_eventually("old.is_synced", lambda: old.is_synced)
        assert await refusal(world, keys.client("B of the other CA")) == 0
        files.trust(keys.ca, keys.other_ca)
        async with world.peer(B, ssl=keys.client("B of the other CA")) as new:
            await async_eventually("new.is_synced", lambda: new.is_synced)
            await reviewed(world)
            assert old.close_code is None
            files.trust(keys.other_ca)
            await async_eventually(
                "old.close_code == wire.Close.REVOKED", lambda: old.close_code == wire.Close.REVOKED
            )
            await reviewed(world)
            assert new.close_code is None
            assert await refusal(world, keys.client()) == 0


async def test_a_certificate_that_expires_ends_its_session(files: Files, keys: Keys) -> None:
    clock = Clock(time.time())
    async with (
        mutual(files, review_s=QUICKLY_S, clock=clock) as world,
        world.peer(ssl=keys.client()) as peer,
    ):
        await async_eventually("a synced peer", lambda: peer.is_synced)
        await reviewed(world)
        clock.now_s += timedelta(days=1.5).total_seconds()
        await async_eventually("a revoked session", lambda: peer.close_code == wire.Close.REVOKED)


# ---- files that cannot be used from the start --------------------------------------------------


UNUSABLE = {
    "no certificate": ({"certificate": "none"}, "none"),
    "a key of another": ({"key": "renewed.key"}, "key values mismatch"),
    "no key": ({"key": "none"}, "No such file"),
    "no PEM": ({"certificate": "empty"}, "empty"),
    "no client CA": ({"client_ca": "none"}, "No such file"),
    "a client CA of nothing": ({"client_ca": "empty"}, "empty"),
    "a client CA that is none": ({"client_ca": "a.crt"}, "holds no CA certificate"),
}


@pytest.mark.parametrize(("changed", "says"), UNUSABLE.values(), ids=UNUSABLE.keys())
def test_unusable_files_are_named(keys: Keys, changed: dict[str, str], says: str) -> None:
    directory = keys.ca.certificate.parent
    (directory / "empty").write_text("")
    named = {"certificate": "server.crt", "key": "server.key", "client_ca": "ca.crt", **changed}
    with pytest.raises(SettingsError, match=says) as raised:
        server_context(TlsFiles(**{name: directory / file for name, file in named.items()}))
    assert f"TLS file {directory}" in str(raised.value)


def test_a_key_with_a_password_is_no_prompt(keys: Keys, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "ec", "-in", keys.server.key, "-aes256", "-passout", "pass:x", "-out", locked],
        check=True,
        capture_output=True,
    )
    with pytest.raises(SettingsError, match="is encrypted"):
        server_context(TlsFiles(certificate=keys.server.certificate, key=locked))
