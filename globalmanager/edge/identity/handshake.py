"""The handshake of a connection, and the interface of the Authenticators that find its node.

The node's name comes from the credential alone. A header may repeat the name, but never decides it.
There are three Authenticators: node_tokens (each node has a secret), service_accounts (a pod's
projected token) and certificates (mutual TLS).
"""

from typing import Final, Protocol

import msgspec

from edgeai.errors import EdgeAIError
from edgeai.ids import NodeName

NODE_HEADER: Final = "Edgeai-Node"  # optional: the node's name as the peer knows it


class Unauthenticated(EdgeAIError):
    """The credential is missing or not good. The log has `reason`. The peer gets only 401."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"not authenticated: {reason}")


class PeerCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a verified client certificate that identify a node."""

    common_names: tuple[str, ...]
    """The CNs of the subject."""
    dns_names: tuple[str, ...]
    """The DNS names of the subjectAltName."""
    expires_at: float
    """The earliest expiry of a certificate in the chain, Unix seconds."""
    anchor: bytes
    """SHA-256 of the CA certificate at the end of the chain."""


class Handshake(msgspec.Struct, frozen=True):
    """The facts about a connection that an Authenticator examines."""

    authorization: str
    """The Authorization header; "" when the header is missing."""
    claimed_node: str
    """The header NODE_HEADER; "" when the header is missing."""
    peer_address: str
    """IP address of the peer, for logs. The address never identifies a node."""
    certificate: PeerCertificate | None = None
    """The client certificate. None without mutual TLS, or when the peer sent no certificate."""


class Authenticator(Protocol):
    """Finds the node that a connection comes from."""

    async def authenticate(self, handshake: Handshake) -> NodeName:
        """The node that the credential belongs to.

        Raises:
            Unauthenticated: the credential is not good
            Unavailable: the Authenticator cannot check the credential now
        """

    async def review(self, handshake: Handshake) -> NodeName:
        """As `authenticate`, for a live session, without remembered answers."""
        return await self.authenticate(handshake)


def bearer_token(authorization: str) -> str:
    """The bearer token of an Authorization header. Raises: Unauthenticated"""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("no bearer token")
    return token.strip()


def check_claim(handshake: Handshake, node: NodeName) -> None:
    """Raises: Unauthenticated when NODE_HEADER names another node than the credential does"""
    if handshake.claimed_node and handshake.claimed_node != node:
        raise Unauthenticated(f"{NODE_HEADER} names another node than the credential")
