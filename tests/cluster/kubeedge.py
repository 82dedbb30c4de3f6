"""What edgecore has put on a node of KubeEdge before anybody installs edgeai."""

from tests.support.certificates import Authority


def files_of(node: str, authority: Authority) -> dict[str, bytes]:
    """Path -> content: the certificate of the node, and the CA of all nodes."""
    subject = f"/O=system:nodes/CN=system:node:{node}"
    certificate, key = authority.issue(node, subject=subject, usage="clientAuth")
    return {
        "/etc/kubeedge/ca/rootCA.crt": authority.certificate.read_bytes(),
        "/etc/kubeedge/certs/server.crt": certificate.read_bytes(),
        "/etc/kubeedge/certs/server.key": key.read_bytes(),
    }
