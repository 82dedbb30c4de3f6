"""Tokens: what the file may say, who is let in, and what happens when the file changes."""

import hashlib
import os
import traceback
from pathlib import Path

import pytest

from edgeai.errors import SettingsError
from edgeai.ids import NodeName
from globalmanager.edge.identity.handshake import Handshake, Unauthenticated
from globalmanager.edge.identity.node_tokens import TokenAuthenticator

HASH = hashlib.sha256(b"one").hexdigest()


def sha(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def shown(authorization: str, claimed: str = "") -> Handshake:
    return Handshake(authorization, claimed, "127.0.0.1")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"# nodes\n\nnode-1 {sha('one')}\nnode-2   {sha('two').upper()}\n")
    return path


async def test_a_token_gives_the_node(file: Path) -> None:
    authenticator = TokenAuthenticator(file)
    assert await authenticator.authenticate(shown("Bearer one")) == "node-1"
    assert await authenticator.authenticate(shown("bearer  two ", "node-2")) == "node-2"


NOT_GOOD = {
    "nothing": shown(""),
    "unknown token": shown("Bearer three"),
    "the hash itself": shown(f"Bearer {HASH}"),
    "no token": shown("Bearer "),
    "another scheme": shown("Basic one"),
    "bytes that are no text": shown("Bearer \udcff"),
    "another node's": shown("Bearer one", "node-2"),
}


@pytest.mark.parametrize("handshake", NOT_GOOD.values(), ids=NOT_GOOD.keys())
async def test_no_other_credential_is_good(file: Path, handshake: Handshake) -> None:
    with pytest.raises(Unauthenticated):
        await TokenAuthenticator(file).authenticate(handshake)


SECRET = "s3cr3t-of-somebody"
SHOWING_A_SECRET = {
    "unknown token": shown(f"Bearer {SECRET}x"),
    "another scheme": shown(f"Basic {SECRET}"),
    "no scheme": shown(SECRET),
    "another node's": shown(f"Bearer {SECRET}", "node-2"),
}


@pytest.mark.parametrize("handshake", SHOWING_A_SECRET.values(), ids=SHOWING_A_SECRET.keys())
async def test_a_refusal_does_not_repeat_the_credential(
    tmp_path: Path, handshake: Handshake
) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"node-1 {sha(SECRET)}\n")
    with pytest.raises(Unauthenticated) as raised:
        await TokenAuthenticator(path).authenticate(handshake)
    told = raised.value.reason + "".join(traceback.format_exception(raised.value))
    assert SECRET not in told
    assert sha(SECRET) not in told


BAD_FILES = {
    "token in clear": (f"node-1 {HASH}\nnode-2 secret-in-clear\n", "line 2", "64 hex digits"),
    "no token": ("node-1\n", "line 1", "64 hex digits"),
    "no name": (f"# c\n\nNode_1 {HASH}\n", "line 3", "no name of a node"),
    "three words": (f"node-1 {HASH} x\n", "line 1", "64 hex digits"),
    "one token, two nodes": (f"node-1 {HASH}\nnode-2 {HASH}\n", "line 2", "node-2"),
}


@pytest.mark.parametrize(("text", "line", "problem"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_bad_line_is_named_by_its_number(
    tmp_path: Path, text: str, line: str, problem: str
) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(SettingsError) as raised:
        TokenAuthenticator(path)
    assert line in str(raised.value)
    assert problem in str(raised.value)
    assert "secret-in-clear" not in str(raised.value)


def test_a_missing_file_is_a_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        TokenAuthenticator(tmp_path / "none")


def test_a_file_that_is_no_text_is_a_settings_error(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(b"node-1 \xff\xfe")
    with pytest.raises(SettingsError, match="UTF-8"):
        TokenAuthenticator(path)


def replace(path: Path, text: str) -> None:
    """As an editor or a Secret volume does: another file under the same name."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def remove(path: Path) -> None:
    path.unlink()


async def test_a_changed_file_is_read_again(file: Path) -> None:
    authenticator = TokenAuthenticator(file)
    replace(file, f"node-1 {sha('one')}\nnode-1 {sha('next')}\n")
    assert await authenticator.authenticate(shown("Bearer next")) == "node-1"
    assert await authenticator.authenticate(shown("Bearer one")) == "node-1"
    with pytest.raises(Unauthenticated):
        await authenticator.authenticate(shown("Bearer two"))
    assert authenticator.nodes() == {NodeName("node-1")}


async def test_a_changed_file_that_cannot_be_used_leaves_the_old_table(file: Path) -> None:
    authenticator = TokenAuthenticator(file)
    replace(file, "node-1 garbage\n")
    assert await authenticator.authenticate(shown("Bearer two")) == "node-2"
    remove(file)
    assert await authenticator.authenticate(shown("Bearer two")) == "node-2"
    replace(file, f"node-3 {sha('three')}\n")
    assert await authenticator.authenticate(shown("Bearer three")) == "node-3"
