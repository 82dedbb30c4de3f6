"""The certificates that an installation makes, read by openssl and by Python's own TLS."""

import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509

from edgeai.cli.credentials.certificates import (
    LASTS,
    Pair,
    issue_node,
    issue_server,
    new_authority,
    problem_of,
)
from globalmanager.rest.certificates import ENDS_SOON

NOW: Final = datetime.now(UTC)
HOST: Final = "globalmanager.edgeai-system.svc"


@pytest.fixture(scope="module")
def authority() -> Pair:
    return new_authority(NOW)


def verified(directory: Path, authority: Pair, pair: Pair, *flags: str) -> str:
    """What `openssl verify` prints."""
    (directory / "ca.crt").write_text(authority.certificate)
    (directory / "leaf.crt").write_text(pair.certificate)
    command = ["openssl", "verify", "-x509_strict", "-CAfile", "ca.crt", *flags, "leaf.crt"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("host", "flag"),
    [(HOST, "-verify_hostname"), ("192.0.2.7", "-verify_ip"), ("fd00::1", "-verify_ip")],
)
def test_an_edge_trusts_the_certificate_of_the_edge_port(
    tmp_path: Path, authority: Pair, host: str, flag: str
) -> None:
    pair = issue_server(authority, host, NOW)
    assert "leaf.crt: OK" in verified(
        tmp_path, authority, pair, "-purpose", "sslserver", flag, host
    )
    assert "OK" not in verified(tmp_path, authority, pair, "-purpose", "sslclient")
    assert "OK" not in verified(tmp_path, new_authority(NOW), pair)
    assert problem_of(pair.certificate, host, NOW) == ""


def test_the_certificate_of_a_node_is_for_clients_and_names_it(
    tmp_path: Path, authority: Pair
) -> None:
    pair = issue_node(authority, "edge0", NOW)
    assert "leaf.crt: OK" in verified(tmp_path, authority, pair, "-purpose", "sslclient")
    assert "OK" not in verified(tmp_path, authority, pair, "-purpose", "sslserver")
    shown = ["openssl", "x509", "-in", "leaf.crt", "-noout", "-subject", "-nameopt", "RFC2253"]
    done = subprocess.run(shown, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "subject=CN=system:node:edge0"


def test_a_key_belongs_to_its_certificate(tmp_path: Path, authority: Pair) -> None:
    pair = issue_server(authority, HOST, NOW)
    path = tmp_path / "pair.pem"
    path.write_text(pair.key + pair.certificate)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)  # raises when it does not
    assert pair.key not in repr(pair)


def test_a_node_whose_clock_is_behind_trusts_the_certificate_at_once(authority: Pair) -> None:
    pair = issue_server(authority, HOST, NOW)
    leaf = x509.load_pem_x509_certificate(pair.certificate.encode())
    assert leaf.not_valid_before_utc <= NOW - timedelta(minutes=4)


def test_a_certificate_that_ends_soon_or_has_another_name_is_a_problem(authority: Pair) -> None:
    pair = issue_server(authority, HOST, NOW)
    late = NOW + LASTS - ENDS_SOON + timedelta(seconds=1)
    assert problem_of(pair.certificate, HOST, late).startswith("ends at ")
    assert problem_of(pair.certificate, HOST, late - timedelta(minutes=1)) == ""
    assert problem_of(pair.certificate, "other.example", NOW) == "has no name other.example"
    assert problem_of(pair.certificate, "192.0.2.7", NOW) == "has no name 192.0.2.7"
    assert problem_of(authority.certificate, HOST, NOW) == f"has no name {HOST}"
    assert problem_of("no PEM", HOST, NOW).startswith("cannot be read")


def test_a_wildcard_is_a_name() -> None:
    pair = issue_server(new_authority(NOW), "*.example.org", NOW)
    assert problem_of(pair.certificate, "edge.example.org", NOW) == ""
    assert problem_of(pair.certificate, "a.edge.example.org", NOW) != ""
