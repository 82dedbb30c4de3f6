"""The files that authenticate a node: what counts as a change of them."""

from pathlib import Path

import pytest

from localcontroller.link.credentials import Credentials


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("first")
    return file


def test_a_credential_that_becomes_unreadable_has_not_changed(token_file: Path) -> None:
    """Else a session would end at the moment in which its files are lost."""
    credentials = Credentials(token_file=token_file)
    digest = credentials.digest()
    token_file.unlink()
    assert credentials.digest() == digest
    token_file.write_text("first")
    assert credentials.digest() == digest


def test_a_credential_that_comes_back_with_another_content_has_changed(token_file: Path) -> None:
    credentials = Credentials(token_file=token_file)
    digest = credentials.digest()
    token_file.unlink()
    credentials.digest()
    token_file.write_text("second")
    assert credentials.digest() != digest


def test_a_credential_that_was_never_readable_changes_once_it_is(token_file: Path) -> None:
    token_file.unlink()
    credentials = Credentials(token_file=token_file)
    digest = credentials.digest()
    assert credentials.digest() == digest
    token_file.write_text("first")
    assert credentials.digest() != digest
