"""Identity by mutual TLS: the node's name is in the client certificate.

TLS verified the client certificate when the connection began. At the handshake and while the
session lives, it must not have expired, and the server must still trust its CA.

The subject's CN `system:node:<name>` has the node's name. Kubernetes and KubeEdge issue such
certificates. In a certificate without such a CN, the only DNS name of the subjectAltName is the
node's name. When a certificate has both, they must name the same node.
"""

from typing import Final, Protocol

from common.clock import SYSTEM_CLOCK, Clock
from edgeai.ids import NodeName, is_subdomain
from globalmanager.edge.identity.handshake import (
    Authenticator,
    Handshake,
    PeerCertificate,
    Unauthenticated,
    check_claim,
)

NODE_CN_PREFIX: Final = "system:node:"


class TrustAnchors(Protocol):
    def trusts(self, anchor: bytes) -> bool:
        """Whether the bundle now has the CA certificate with this SHA-256."""


class CertificateAuthenticator(Authenticator):
    """Finds the node of a connection by its client certificate."""

    def __init__(self, anchors: TrustAnchors, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._anchors, self._clock = anchors, clock

    async def authenticate(self, handshake: Handshake) -> NodeName:
        certificate = handshake.certificate
        if certificate is None:
            raise Unauthenticated("no client certificate")
        if certificate.expires_at <= self._clock.utcnow().timestamp():
            raise Unauthenticated("the client certificate, or a CA of its chain, has expired")
        if not self._anchors.trusts(certificate.anchor):
            raise Unauthenticated("the CA of the client certificate is trusted no more")
        node = node_of(certificate)
        check_claim(handshake, node)
        return node


def node_of(certificate: PeerCertificate) -> NodeName:
    """The node that the certificate names. Raises: Unauthenticated"""
    node_names = [
        name.removeprefix(NODE_CN_PREFIX)
        for name in certificate.common_names
        if name.startswith(NODE_CN_PREFIX)
    ]
    names = node_names or list(certificate.dns_names)
    if len(names) != 1:
        raise Unauthenticated(
            f"the client certificate names {len(names)} nodes, not one; "
            f"give it the CN {NODE_CN_PREFIX}<name> or one DNS name as subjectAltName"
        )
    if certificate.dns_names and names[0] not in certificate.dns_names:
        raise Unauthenticated("the client certificate names one node as CN and others as DNS names")
    if not is_subdomain(names[0]):
        raise Unauthenticated("the name in the client certificate is no name of a node")
    return NodeName(names[0])
