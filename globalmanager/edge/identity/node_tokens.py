"""Identity by bearer tokens: each node has a secret token, and a file has the hashes of the tokens.

For the local cluster, and for sites with neither ServiceAccount tokens at the edge nor a CA.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from common.logs import get_logger
from edgeai.errors import SettingsError
from edgeai.ids import NodeName, is_subdomain
from globalmanager.edge.identity.files import stamp
from globalmanager.edge.identity.handshake import (
    Authenticator,
    Handshake,
    Unauthenticated,
    bearer_token,
    check_claim,
)

log = get_logger(__name__)

_SHA256_HEX: Final = re.compile(r"[0-9a-f]{64}\Z")


class TokenAuthenticator(Authenticator):
    """Finds the node of a connection by the bearer token.

    The token file has lines `<node> <sha256 hex of the token>`. Blank lines and lines that begin
    with "#" are ignored. A node may have several lines, so that an administrator can replace its
    token without a gap. A changed file is read at the next handshake. When it cannot be used, the
    log has the problem and the earlier tokens stay valid.

    Raises: SettingsError when the file cannot be used at the start
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = stamp(path)
        self._nodes = read_tokens(path)  # sha256 of a token, as hex digits -> the token's node

    async def authenticate(self, handshake: Handshake) -> NodeName:
        self._reload_if_changed()
        # The keys are digests, so the time of the look-up reveals nothing about a token.
        node = self._nodes.get(sha256_hex(bearer_token(handshake.authorization)))
        if node is None:
            raise Unauthenticated("unknown token")
        check_claim(handshake, node)
        return node

    def _reload_if_changed(self) -> None:
        now = stamp(self._path)
        if now == self._stamp:
            return
        self._stamp = now
        try:
            self._nodes = read_tokens(self._path)
        except SettingsError as error:
            log.error("edge token file kept as it was before", problem=str(error))
        else:
            log.info("edge token file read", path=str(self._path), nodes=len(self.nodes()))

    def nodes(self) -> frozenset[NodeName]:
        return frozenset(self._nodes.values())


def read_tokens(path: Path) -> Mapping[str, NodeName]:
    """Token digest (sha256 hex) -> node. Raises: SettingsError that names the line"""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise _unusable(path, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise _unusable(path, "is not UTF-8 text") from error
    nodes: dict[str, NodeName] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        node, digest = _parse_line(path, number, text)
        if nodes.setdefault(digest, node) != node:
            raise _unusable(path, f"line {number}: the token of node {node!r} has another node too")
    return nodes


def _parse_line(path: Path, number: int, text: str) -> tuple[NodeName, str]:
    # The errors do not quote the line, because a user may have written a token instead of its hash.
    node, _, digest = text.partition(" ")
    digest = digest.strip().lower()
    if not is_subdomain(node):
        raise _unusable(path, f"line {number}: the first word is no name of a node")
    if not _SHA256_HEX.match(digest):
        raise _unusable(
            path,
            f"line {number}: node {node!r} needs the sha256 of its token, 64 hex digits "
            "(printf %s TOKEN | sha256sum)",
        )
    return NodeName(node), digest


def sha256_hex(token: str) -> str:
    # websockets decodes non-ASCII bytes of a header as surrogates, which a plain encode() refuses.
    # Such a token gets a digest that equals no stored digest.
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def _unusable(path: Path, problem: str) -> SettingsError:
    return SettingsError(f"edge token file {path}", problem)
