"""Credentials of edge nodes as files: what is good stays, what no edge port takes is made anew."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli.credentials.certificates import (
    LASTS,
    Pair,
    new_authority,
    node_problem_of,
)
from edgeai.cli.credentials.node_files import CredentialsError, NodeFiles
from globalmanager.rest.certificates import ENDS_SOON

NOW: Final = datetime.now(UTC)
AUTHORITY: Final = new_authority(NOW)


def made(directory: Path, now: datetime = NOW, authority: Pair = AUTHORITY) -> list[str]:
    """What is said while the certificate of edge0 is made, where it must be."""
    told: list[str] = []
    NodeFiles(directory, told.append).certificate(authority, "edge0", now)
    return told


def test_a_good_certificate_stays(tmp_path: Path) -> None:
    assert [line.partition(" ")[0] for line in made(tmp_path)] == ["wrote", "wrote"]
    files = tmp_path / "edge0" / "tls.crt", tmp_path / "edge0" / "tls.key"
    before = [each.read_bytes() for each in files]
    (told,) = made(tmp_path, NOW + LASTS - 2 * ENDS_SOON)
    assert told == f"{files[0]} is there already, and stays as it is"
    assert [each.read_bytes() for each in files] == before


def test_one_that_ends_soon_is_made_anew_with_its_key(tmp_path: Path) -> None:
    made(tmp_path)
    key = (tmp_path / "edge0" / "tls.key").read_bytes()
    told = made(tmp_path, NOW + LASTS - ENDS_SOON)
    assert "tls.crt ends at " in told[0]
    assert "making a new one" in told[0]
    assert (tmp_path / "edge0" / "tls.key").read_bytes() != key
    assert len(made(tmp_path, NOW + LASTS - ENDS_SOON)) == 1


def test_one_of_an_earlier_installation_is_made_anew(tmp_path: Path) -> None:
    made(tmp_path)
    other = new_authority(NOW)  # of the same name
    assert "is of another CA" in made(tmp_path, authority=other)[0]
    text = (tmp_path / "edge0" / "tls.crt").read_text()
    assert node_problem_of(text, other, NOW) == ""
    assert "is of another CA" in node_problem_of(text, AUTHORITY, NOW)


@pytest.mark.parametrize("text", ["", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_one_that_cannot_be_read_is_made_anew(tmp_path: Path, text: str) -> None:
    made(tmp_path)
    (tmp_path / "edge0" / "tls.crt").write_text(text)
    assert "cannot be read" in made(tmp_path)[0]
    assert len(made(tmp_path)) == 1


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "edge0").write_text("a file")
    with pytest.raises(CredentialsError, match=r"credentials of node edge0: .*name another"):
        made(tmp_path)
