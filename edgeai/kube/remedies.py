"""What a person can do when the Kubernetes API does not do what a request asks, by cause.

The client adds these texts to its errors. A process that runs on and a command that a person types
have a table each. {source} stands for the configuration that names the server and the credential,
such as "kubeconfig /home/eve/.kube/config". A cause with the text "" gets no advice.
"""

from typing import Final

import msgspec

UPGRADE: Final = (
    "run `helm upgrade` with the chart of this version, or apply its deploy/edgeai.yaml"
)
"""Installs the definitions and rights that a version needs."""


class Remedies(msgspec.Struct, frozen=True, kw_only=True):
    unauthorized: str
    """The API server does not know the credential."""
    missing_right: str
    """The credential is known, and lacks a right."""
    distrusted: str
    """The certificate of the server is of another CA, or for another name."""
    plain_http: str
    """The request came without TLS to a server of TLS."""
    unreachable: str = ""
    """There is no connection, or it broke."""
    unknown_host: str = ""
    """The server's name has no address."""
    silent: str = ""
    """The server does not answer in time."""
    no_api: str = ""
    """The answer comes from something else, such as a proxy."""


OF_A_PROCESS: Final = Remedies(
    unauthorized="correct the credential of {source}; it is read again twice a minute",
    missing_right=f"grant that right: {UPGRADE}",
    distrusted="correct certificate-authority, or server, in {source}, and restart",
    plain_http="the server speaks TLS: write https:// in {source}, and restart",
)
OF_A_COMMAND: Final = Remedies(
    unauthorized="renew the credential in {source}, or name another file with --kubeconfig",
    missing_right="ask an administrator of the cluster for this right",
    distrusted="correct certificate-authority, or server, in {source}",
    plain_http="the server speaks TLS: write https:// in {source}",
    unreachable=(
        "check the server in {source}, whether it runs, and whether this machine reaches it"
    ),
    unknown_host="correct the server in {source}, or the DNS of this machine",
    silent="see whether the server in {source} is overloaded, or a firewall is in between",
    no_api="correct the server in {source}, or the proxy in between",
)
