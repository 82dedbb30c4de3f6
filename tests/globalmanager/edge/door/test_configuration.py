"""What the settings may say about the edge port, and what is answered to the rest."""

import hashlib
from typing import Any

import pytest

from edgeai.errors import SettingsError
from globalmanager.edge.door.configuration import DoorConfiguration
from globalmanager.edge.identity.certificates import CertificateAuthenticator
from globalmanager.edge.identity.node_tokens import TokenAuthenticator
from globalmanager.edge.identity.service_accounts import ReviewLimits, ServiceAccountAuthenticator
from globalmanager.settings import Settings
from tests.support.certificates import Authority


class Nobody:
    """A cluster that nothing is asked."""

    async def review_token(self, token: str, audience: str) -> Any:
        raise AssertionError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All settings that name a file."""
    directory = tmp_path_factory.mktemp("files")
    authority = Authority(directory)
    server = authority.issue("server", alternative="DNS:gm", usage="serverAuth")
    tokens = directory / "tokens"
    tokens.write_text(f"edge0 {hashlib.sha256(b'x').hexdigest()}\n")
    return {
        "edge_token_file": str(tokens),
        "edge_tls_certificate": str(server.certificate),
        "edge_tls_key": str(server.key),
        "edge_client_ca": str(authority.certificate),
    }


TLS = ("edge_tls_certificate", "edge_tls_key")
PLAIN = {"edge_plaintext": "allow"}
TOKEN = ("edge_token_file",)
SERVICE_ACCOUNT = {"edge_auth": "serviceaccount"}
MTLS = {"edge_auth": "mtls"}

GOOD: dict[str, tuple[tuple[str, ...], dict[str, Any], type, bool]] = {
    "tokens over TLS": (TOKEN + TLS, {}, TokenAuthenticator, True),
    "tokens in plain": (TOKEN, PLAIN, TokenAuthenticator, False),
    "pods over TLS": (TLS, SERVICE_ACCOUNT, ServiceAccountAuthenticator, True),
    "pods in plain": ((), SERVICE_ACCOUNT | PLAIN, ServiceAccountAuthenticator, False),
    "certificates": ((*TLS, "edge_client_ca"), MTLS, CertificateAuthenticator, True),
}


@pytest.mark.parametrize(
    ("named", "said", "authenticator", "is_secure"), GOOD.values(), ids=GOOD.keys()
)
def test_each_way_is_built(
    files: dict[str, Any],
    named: tuple[str, ...],
    said: dict[str, Any],
    authenticator: type,
    is_secure: bool,
) -> None:
    door = DoorConfiguration(Settings(**{name: files[name] for name in named}, **said))
    assert isinstance(door.authenticator(Nobody()), authenticator)
    assert (door.tls is not None) == is_secure


@pytest.mark.parametrize("url", ["ws://gm:9000", "wss://[2001:db8::1]:443", ""])
def test_a_url_of_the_replica_may_be_that_of_a_proxy_with_tls(
    files: dict[str, Any], url: str
) -> None:
    fields: dict[str, Any] = {name: files[name] for name in TOKEN} | PLAIN
    DoorConfiguration(Settings(**fields, edge_url=url))


def test_nodes_use_a_quarter_of_the_clients_rate_for_unknown_tokens() -> None:
    settings = Settings(edge_auth="serviceaccount", edge_plaintext="allow", qps=80.0)
    authenticator = DoorConfiguration(settings).authenticator(Nobody())
    assert isinstance(authenticator, ServiceAccountAuthenticator)
    assert authenticator._limits == ReviewLimits(per_s=20.0)


BAD: dict[str, tuple[tuple[str, ...], dict[str, Any], str, str]] = {
    "no tokens": ((), PLAIN, "--edge-token-file", "is required with --edge-auth token"),
    "no TLS, not said": (TOKEN, {}, "--edge-tls-certificate", "--edge-plaintext allow"),
    "pods, no TLS, not said": ((), SERVICE_ACCOUNT, "--edge-tls-certificate", "is required"),
    "a certificate alone": (
        TOKEN + TLS[:1],
        {},
        "--edge-tls-certificate",
        "--edge-tls-key must be given together",
    ),
    "a key alone": (TOKEN + TLS[1:], {}, "--edge-tls-certificate", "must be given together"),
    "TLS and plain": (TOKEN + TLS, PLAIN, "--edge-plaintext", "contradicts TLS"),
    "certificates in plain": (("edge_client_ca",), MTLS | PLAIN, "--edge-plaintext", "contradicts"),
    "certificates of no CA": (TLS, MTLS, "--edge-client-ca", "must be given together"),
    "a CA of tokens": ((*TOKEN, *TLS, "edge_client_ca"), {}, "--edge-client-ca", "mtls"),
    "no account": (
        TLS,
        SERVICE_ACCOUNT | {"edge_service_account": "localcontroller"},
        "--edge-service-account",
        "NAMESPACE/NAME",
    ),
    "a URL without a port": (TOKEN, PLAIN | {"edge_url": "wss://gm"}, "--edge-url", "HOST:PORT"),
    "a URL with a wrong port": (
        TOKEN,
        PLAIN | {"edge_url": "ws://gm:x"},
        "--edge-url",
        "ws://gm:x",
    ),
    "a plain URL of TLS": (TOKEN + TLS, {"edge_url": "ws://gm:9000"}, "--edge-url", "no wss://"),
    "a URL with a user": (TOKEN, PLAIN | {"edge_url": "ws://u@gm:9"}, "--edge-url", "HOST:PORT"),
    "a URL too long for a close frame": (
        TOKEN,
        PLAIN | {"edge_url": f"wss://{'g' * 120}:9000"},
        "--edge-url",
        "longer than 123",
    ),
    "never reviewed": (TOKEN, PLAIN | {"edge_review_s": 0.0}, "--edge-review-s", "positive"),
}


@pytest.mark.parametrize(("named", "said", "flag", "problem"), BAD.values(), ids=BAD.keys())
def test_a_contradiction_names_its_flag(
    files: dict[str, Any], named: tuple[str, ...], said: dict[str, Any], flag: str, problem: str
) -> None:
    with pytest.raises(SettingsError) as raised:
        DoorConfiguration(Settings(**{name: files[name] for name in named}, **said))
    assert raised.value.source == f"flag {flag}"
    assert problem in raised.value.problem
