"""Certificates of the edge port, and of each node of a measurement."""

import functools
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.certificates import Authority


class Certificates:
    """Args: directory: does not exist yet; nodes: the names of the nodes

    `of_nodes` are the arguments of a load's process: the CA, and the directory of the certificates.
    `flags` are for the GlobalManager, which then accepts TLS alone.
    """

    def __init__(self, directory: Path, nodes: Iterable[str]) -> None:
        directory.mkdir()
        authority = Authority(directory)
        server = authority.issue("edge-port", alternative="IP:127.0.0.1", usage="serverAuth")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(functools.partial(_issue, authority), nodes))
        self.of_nodes = (str(authority.certificate), str(directory))
        self.flags = (
            *("--edge-auth", "mtls", "--edge-plaintext", "refuse"),
            *("--edge-client-ca", str(authority.certificate)),
            *("--edge-tls-certificate", str(server.certificate)),
            *("--edge-tls-key", str(server.key)),
        )


def _issue(authority: Authority, node: str) -> None:
    authority.issue(node, alternative=f"DNS:{node}")
