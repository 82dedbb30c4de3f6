"""DNS of the test cluster: dnsmasq, told the addresses of Services once a second.

A Service is known as NAME.NAMESPACE.svc.cluster.local; a headless one by its ready pods.
"""

import ipaddress
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edgeai.cli.api import ApiError, Object
from tests.cluster.programs import Program, ProgramEnded
from tests.support.client import Client

_DOMAIN: Final = "cluster.local"
_PERIOD_S: Final = 1.0
_PORT: Final = 53


class Dns:
    """Args:
    client: may list Services and Endpoints
    address: where it listens, port 53
    directory: gets its files
    """

    def __init__(self, client: Client, *, address: str, directory: Path) -> None:
        self._client = client
        self._address = address
        self._hosts = directory / "hosts"
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="dns", daemon=True)
        argv = [
            *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root"),
            *(f"--listen-address={address}", "--bind-interfaces", f"--addn-hosts={self._hosts}"),
            *("--no-hosts", "--no-resolv", f"--local=/{_DOMAIN}/", "--pid-file="),
        ]
        self._program = Program(argv, log=directory / "dnsmasq.log")

    def start(self) -> None:
        self._hosts.touch()
        self._program.start()
        # A program that does not listen yet may have no handler for SIGHUP, which would end it.
        self._program.eventually("its port", self._listens)
        self._thread.start()

    def _listens(self) -> bool:
        try:
            socket.create_connection((self._address, _PORT), timeout=1.0).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._program.stop()

    def check_alive(self) -> None:
        self._program.check_alive()
        if not self._thread.is_alive():
            raise ProgramEnded("the thread that tells dnsmasq of Services has ended")

    def _follow(self) -> None:
        while not self._stopped.wait(_PERIOD_S):
            try:
                hosts = self._read_hosts()
            except (ApiError, OSError):
                continue  # the API server is away, which some test may want
            if hosts != self._hosts.read_text():
                self._hosts.write_text(hosts)
                self._program.send(signal.SIGHUP)

    def _read_hosts(self) -> str:
        endpoints = {_name(each): each for each in self._client.list("/api/v1/endpoints")}
        lines = [
            f"{address} {_name(service)}\n"
            for service in self._client.list("/api/v1/services")
            for address in _addresses(service, endpoints.get(_name(service), {}))
        ]
        return "".join(sorted(lines))


def _name(object_: Object) -> str:
    metadata = object_["metadata"]
    return f"{metadata['name']}.{metadata['namespace']}.svc.{_DOMAIN}"


def _addresses(service: Object, endpoints: Object) -> Iterator[str]:
    address = service["spec"].get("clusterIP", "")
    if _is_address(address):
        yield address
        return
    for subset in endpoints.get("subsets", ()):
        for ready in subset.get("addresses", ()):
            yield ready["ip"]


def _is_address(text: str) -> bool:
    """Not so: "None" of a headless Service, "" of an external one."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
