"""The link over TLS against the GlobalManager's own port, and its error messages."""

import contextlib
import hashlib
import os
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from common import wire
from edgeai.backoff import Backoff
from edgeai.ids import NodeName
from globalmanager.edge.door.tls import ServerTls, TlsFiles
from globalmanager.edge.identity.certificates import CertificateAuthenticator
from localcontroller.ledger.ledger import Ledger
from localcontroller.link.credentials import CredentialError, Credentials
from localcontroller.link.endpoint import Addresses, Endpoint
from localcontroller.link.link import Delays, Link
from localcontroller.metrics import Metrics
from tests.globalmanager.edge.door.test_tls import reviewed
from tests.globalmanager.edge.world import EdgeSide, token
from tests.localcontroller.builders import TIMING
from tests.localcontroller.link.test_link import quick_delays
from tests.support.certificates import Authority, Pair
from tests.support.tasks import beside
from tests.support.waiting import async_eventually

NODE = "node-0"


class Keys:
    def __init__(self, directory: Path) -> None:
        self.ca = Authority(directory)
        self.other_ca = Authority(directory, "other-ca", subject="/CN=other-ca")
        self.server = self.ca.issue("server", alternative="IP:127.0.0.1", usage="serverAuth")
        self.elsewhere = self.ca.issue("elsewhere", alternative="DNS:gm", usage="serverAuth")
        self.expired_server = self.ca.issue(
            "late", alternative="IP:127.0.0.1", usage="serverAuth", lasts=timedelta(hours=-1)
        )
        self.client = self.ca.issue("client", subject=f"/CN=system:node:{NODE}")
        self.renewed = self.ca.issue("renewed", subject=f"/CN=system:node:{NODE}")
        self.stranger = self.other_ca.issue("stranger", subject=f"/CN=system:node:{NODE}")
        self.nobody = self.ca.issue("nobody")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@contextlib.asynccontextmanager
async def world_of(
    tmp_path: Path, keys: Keys, server: Pair | None = None, **fields: Any
) -> AsyncIterator[EdgeSide]:
    certificate, key = server or keys.server
    tls = ServerTls(TlsFiles(certificate=certificate, key=key, client_ca=keys.ca.certificate))
    authenticator = CertificateAuthenticator(tls)
    world = EdgeSide(tmp_path / "tokens", tls=tls, authenticator=authenticator, **fields)
    async with world.running():
        yield world


def credentials(keys: Keys, client: Pair | None = None, **fields: Any) -> Credentials:
    certificate, key = client or keys.client
    files = {"ca_file": keys.ca.certificate, "client_certificate": certificate, "client_key": key}
    return Credentials(**{**files, **fields})


@contextlib.asynccontextmanager
async def linked(
    ledger: Ledger,
    url: str,
    credentials: Credentials,
    delays: Delays | None = None,
    **fields: Any,
) -> AsyncIterator[Link]:
    endpoint = Endpoint(addresses=Addresses([url]), node=NODE, credentials=credentials)
    delays = delays or quick_delays()
    link = Link(endpoint, ledger, Metrics(), timing=TIMING, delays=delays, **fields)
    async with beside(link.run(), "link") as task:
        yield link
        assert not task.done()  # the link survived


async def test_a_certificate_opens_a_session(ledger: Ledger, tmp_path: Path, keys: Keys) -> None:
    async with (
        world_of(tmp_path, keys) as world,
        linked(ledger, world.url, credentials(keys)) as link,
    ):
        await async_eventually("a session", lambda: link.state.connected)
        assert list(world.contacts.by_node()) == [NODE]


async def error_of(ledger: Ledger, url: str, credentials: Credentials) -> str:
    """The link's error after its first failure."""
    async with linked(ledger, url, credentials) as link:
        await async_eventually("a failure", lambda: link.state.failures >= 1)
        return link.state.last_error


async def test_this_node_refuses_an_unknown_ca(ledger: Ledger, tmp_path: Path, keys: Keys) -> None:
    async with world_of(tmp_path, keys) as world:
        presented = credentials(keys, ca_file=keys.other_ca.certificate)
        problem = await error_of(ledger, world.url, presented)
    assert "this node does not accept the certificate of wss://127.0.0.1" in problem
    assert "self-signed certificate in certificate chain" in problem
    assert "--ca-file" in problem


async def test_the_name_of_the_server_is_checked(
    ledger: Ledger, tmp_path: Path, keys: Keys
) -> None:
    async with world_of(tmp_path, keys, keys.elsewhere) as world:
        problem = await error_of(ledger, world.url, credentials(keys))
    assert "this node does not accept" in problem
    assert "IP address mismatch" in problem


async def test_an_expired_server_is_named(ledger: Ledger, tmp_path: Path, keys: Keys) -> None:
    async with world_of(tmp_path, keys, keys.expired_server) as world:
        problem = await error_of(ledger, world.url, credentials(keys))
    assert "certificate has expired" in problem


async def test_a_client_certificate_that_is_not_accepted_is_named(
    ledger: Ledger, tmp_path: Path, keys: Keys
) -> None:
    async with world_of(tmp_path, keys) as world:
        problem = await error_of(ledger, world.url, credentials(keys, keys.stranger))
    assert "ended the connection without an answer" in problem
    assert f"accept the client certificate {keys.stranger.certificate}" in problem


async def test_a_certificate_without_a_node_is_a_rejected_credential(
    ledger: Ledger, tmp_path: Path, keys: Keys
) -> None:
    async with world_of(tmp_path, keys) as world:
        problem = await error_of(ledger, world.url, credentials(keys, keys.nobody))
    assert "rejects the credential of this node with 401" in problem


async def test_a_port_without_tls_is_named(ledger: Ledger, tmp_path: Path, keys: Keys) -> None:
    async with EdgeSide(tmp_path / "tokens").running() as world:
        url = world.url.replace("ws://", "wss://")
        problem = await error_of(ledger, url, credentials(keys))
    assert f"no TLS with {url}" in problem or "ended the connection without an answer" in problem


UNUSABLE: dict[str, dict[str, Any]] = {
    "no certificate": {"client_certificate": Path("/nowhere/tls.crt")},
    "no key": {"client_key": Path("/nowhere/tls.key")},
    "no CA": {"ca_file": Path("/nowhere/ca.crt")},
}


@pytest.mark.parametrize("changed", UNUSABLE.values(), ids=UNUSABLE.keys())
async def test_a_file_that_cannot_be_used_is_named_and_tried_again(
    ledger: Ledger, tmp_path: Path, keys: Keys, changed: dict[str, Any]
) -> None:
    async with world_of(tmp_path, keys) as world:
        problem = await error_of(ledger, world.url, credentials(keys, **changed))
    assert "/nowhere/" in problem
    assert "No such file" in problem


async def test_files_are_read_at_each_dial(ledger: Ledger, tmp_path: Path, keys: Keys) -> None:
    """A rejected certificate is replaced while the link waits; then a session opens."""
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    put(certificate, keys.nobody.certificate)
    put(key, keys.nobody.key)
    quick = Backoff(base_s=0.01, max_s=0.05)
    delays = Delays(usual=quick, rival=quick, credential_s=0.2)
    presented = credentials(keys, Pair(certificate, key))
    async with (
        world_of(tmp_path, keys) as world,
        linked(ledger, world.url, presented, delays) as link,
    ):
        await async_eventually("a failure", lambda: link.state.failures)
        put(certificate, keys.renewed.certificate)
        put(key, keys.renewed.key)
        await async_eventually("a session", lambda: link.state.connected)


async def test_after_a_revoked_credential_the_new_one_opens_a_session_at_once(
    ledger: Ledger, tmp_path: Path, keys: Keys
) -> None:
    """The same happens to a token that was rotated before it expired."""
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    put(certificate, keys.stranger.certificate)
    put(key, keys.stranger.key)
    bundle = tmp_path / "clients.crt"
    bundle.write_bytes(keys.ca.certificate.read_bytes() + keys.other_ca.certificate.read_bytes())
    tls = ServerTls(
        TlsFiles(certificate=keys.server.certificate, key=keys.server.key, client_ca=bundle)
    )
    world = EdgeSide(
        tmp_path / "tokens",
        tls=tls,
        authenticator=CertificateAuthenticator(tls),
        review_s=0.05,
    )
    presented = credentials(keys, Pair(certificate, key))
    async with world.running(), linked(ledger, world.url, presented) as link:
        await async_eventually("a session", lambda: link.state.connected)
        put(certificate, keys.renewed.certificate)
        put(key, keys.renewed.key)
        put(bundle, keys.ca.certificate)  # the CA of the first certificate is no longer trusted
        await async_eventually("a failure", lambda: link.state.failures)
        assert "4003" in link.state.last_error
        assert link.state.retry_in_s < 1
        await async_eventually("a session", lambda: link.state.connected)


def ended(world: EdgeSide, code: wire.Close) -> float:
    return world.sample("edgeai_edge_sessions_ended_total", code=str(int(code)))


async def test_a_rotated_token_is_used_before_the_old_one_expires(
    ledger: Ledger, tmp_path: Path
) -> None:
    """The kubelet rotates tokens so: both tokens are valid for a while."""
    tokens, presented = tmp_path / "tokens", tmp_path / "token"
    old, new = (f"{NODE} {hashlib.sha256(name).hexdigest()}\n" for name in (b"old", b"new"))
    write(presented, "old")
    world = EdgeSide(tokens, review_s=0.05)
    write(tokens, old + new)
    credentials = Credentials(token_file=presented)
    async with (
        world.running(),
        linked(ledger, world.url, credentials, credential_check_s=0.02) as link,
    ):
        await async_eventually("a session", lambda: link.state.connected)
        first = link.state.session
        write(presented, "new")
        await async_eventually("another session", lambda: link.state.session not in ("", first))
        write(tokens, new)
        await reviewed(world)
        assert link.state.connected
        assert (link.state.failures, link.state.last_error) == (0, "")
        assert ended(world, wire.Close.GOING_AWAY) == 1
        assert ended(world, wire.Close.REVOKED) == 0


async def test_a_certificate_that_is_renewed_is_used_once_its_key_is_there_too(
    ledger: Ledger, tmp_path: Path, keys: Keys
) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    put(certificate, keys.client.certificate)
    put(key, keys.client.key)
    presented = credentials(keys, Pair(certificate, key))
    async with (
        world_of(tmp_path, keys, review_s=0.05) as world,
        linked(ledger, world.url, presented, credential_check_s=0.02) as link,
    ):
        await async_eventually("a session", lambda: link.state.connected)
        first = link.state.session
        put(certificate, keys.renewed.certificate)
        await reviewed(world)
        assert link.state.session == first
        put(key, keys.renewed.key)
        await async_eventually("another session", lambda: link.state.session not in ("", first))
        assert link.state.failures == 0
        assert ended(world, wire.Close.REVOKED) == 0


async def test_edges_whose_credentials_change_together_reconnect_at_random_times(
    ledger: Ledger, tmp_path: Path
) -> None:
    """The delay is a random draw from the whole check period."""
    presented, drawn = tmp_path / "token", list[tuple[float, float]]()
    write(presented, token(NodeName(NODE)))

    def draw(low: float, high: float) -> float:
        drawn.append((low, high))
        return low

    world = EdgeSide(tmp_path / "tokens")
    async with (
        world.running(),
        linked(
            ledger,
            world.url,
            Credentials(token_file=presented),
            credential_check_s=0.02,
            uniform=draw,
        ) as link,
    ):
        await async_eventually("a session", lambda: link.state.connected)
        write(presented, token(NodeName(NODE)) + "\n")
        await async_eventually("a random draw", lambda: drawn)
        assert drawn[0] == (0.0, 0.02)


def write(path: Path, text: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def put(path: Path, source: Path) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(source.read_bytes())
    os.replace(new, path)


def test_a_key_with_a_password_causes_an_error_without_a_prompt_or_secret(
    keys: Keys, tmp_path: Path
) -> None:
    locked = tmp_path / "locked.key"
    locked.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\ns3cr3t\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    with pytest.raises(CredentialError) as raised:
        credentials(keys, client_key=locked).tls()
    assert str(locked) in str(raised.value)
    assert "s3cr3t" not in str(raised.value)


def test_tls_is_modern_and_checks_names(keys: Keys) -> None:
    context = credentials(keys).tls()
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
