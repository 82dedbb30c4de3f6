"""Identity by mutual TLS: the node's name is in the client certificate.

Built by Admittance, called by the server. TLS verified the certificate when the connection was
made. This module reads the name, and checks, also while the session lives, that the certificate
has not expired and that the CA it was verified with is still trusted.

The name is the subject's CN `system:node:<name>`, as Kubernetes and KubeEdge issue it; without
that the only DNS name of the subjectAltName. A certificate with both must have the same in both.
"""

import time
from collections.abc import Callable
from typing import Final

from common.ids import NodeName, is_subdomain
from globalmanager.edge.identity.handshake import (
    Handshake,
    PeerCertificate,
    Unauthenticated,
    check_claim,
)

NODE_CN_PREFIX: Final = "system:node:"


class CertificateAuthenticator:
    """
    Args:
        is_trusted: whether a CA certificate, given by its SHA-256, is in the bundle now
        unix_s: seconds since 1970, as the times of certificates
    """

    def __init__(
        self, is_trusted: Callable[[bytes], bool], *, unix_s: Callable[[], float] = time.time
    ) -> None:
        self._is_trusted = is_trusted
        self._unix_s = unix_s

    async def authenticate(self, handshake: Handshake) -> NodeName:
        certificate = handshake.certificate
        if certificate is None:
            raise Unauthenticated("no client certificate")
        if certificate.expires_at <= self._unix_s():
            raise Unauthenticated("the client certificate, or a CA of its chain, has expired")
        if not self._is_trusted(certificate.anchor):
            raise Unauthenticated("the CA of the client certificate is trusted no more")
        node = node_of(certificate)
        check_claim(handshake, node)
        return node

    async def review(self, handshake: Handshake) -> NodeName:
        return await self.authenticate(handshake)


def node_of(certificate: PeerCertificate) -> NodeName:
    """Raises: Unauthenticated"""
    named = [
        name.removeprefix(NODE_CN_PREFIX)
        for name in certificate.common_names
        if name.startswith(NODE_CN_PREFIX)
    ]
    names = named or list(certificate.dns_names)
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
