"""Who is calling: what a connection shows, and the Authenticator that finds the node's name in it.

The server calls an Authenticator before any frame of a connection is read, and again while the
session lives. The name comes from the credential alone; a header may repeat the name, but never
decides it. There are three Authenticators: node_tokens (a secret of each node), service_accounts
(a pod's projected token) and certificates (mutual TLS).
"""

from typing import Final, Protocol

import msgspec

from common.errors import EdgeAIError
from common.ids import NodeName

NODE_HEADER: Final = "Edgeai-Node"  # optional: the name that the peer believes to have


class Unauthenticated(EdgeAIError):
    """There is no good credential. `reason` is for our log; the peer hears only 401."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"not authenticated: {reason}")


class PeerCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """What is used of a client certificate that TLS has verified."""

    common_names: tuple[str, ...]
    """CN of its subject."""
    dns_names: tuple[str, ...]
    """DNS names of its subjectAltName."""
    expires_at: float
    """When the first certificate of its chain to expire does so, Unix seconds."""
    anchor: bytes
    """SHA-256 of the CA certificate that its chain ends in."""


class Handshake(msgspec.Struct, frozen=True):
    """What a connection shows of itself before it is let in."""

    authorization: str
    """The Authorization header, "" without one."""
    claimed_node: str
    """The NODE_HEADER, "" without one."""
    peer_address: str
    """IP address of the peer, for logs; never an identity."""
    certificate: PeerCertificate | None = None
    """None without mutual TLS, or where the peer sent none."""


class Authenticator(Protocol):
    async def authenticate(self, handshake: Handshake) -> NodeName:
        """The node that the credential belongs to.

        Raises:
            Unauthenticated: the credential is not good
            Unavailable: nobody can say now whether the credential is good
        """

    async def review(self, handshake: Handshake) -> NodeName:
        """As `authenticate`, for a live session: looks anew whether the credential is still good,
        never from memory."""


def bearer_token(authorization: str) -> str:
    """Raises: Unauthenticated"""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("no bearer token")
    return token.strip()


def check_claim(handshake: Handshake, node: NodeName) -> None:
    """Raises: Unauthenticated when the peer believes to be another node than its credential"""
    if handshake.claimed_node and handshake.claimed_node != node:
        raise Unauthenticated(f"{NODE_HEADER} names another node than the credential")
