"""The network between the nodes of the test cluster and this machine.

A bridge in a network namespace of its own, which one process holds: it is gone when that ends.
This machine has one address on it, each node one; addresses come from one private /16:

    10.X.0.1        this machine: the API server and DNS listen there
    10.X.0.(10+N)   node N
    10.X.(10+N).0   /24 of node N's pods
"""

import ipaddress
import os
import random
import subprocess
from functools import partial
from pathlib import Path
from typing import Final

from tests.cluster.controlplane import SERVICES
from tests.cluster.machine import Machine
from tests.cluster.programs import Program
from tests.support.waiting import eventually

_BRIDGE: Final = "bridge"
_ISOLATED: Final = "ISOLATED"
_KUBELET_PORT: Final = 10250
_FIRST_NODE: Final = 10
_CANDIDATES: Final = range(128, 256)


class Network:
    """Args: directory: gets a log"""

    def __init__(self, directory: Path) -> None:
        self._x = _free_second_octet()
        self._holder = Program(
            ["unshare", "--net", "sleep", "infinity"], log=directory / "network.log"
        )
        self._plugged: list[Machine] = []

    @property
    def host(self) -> str:
        """Address of this machine."""
        return f"10.{self._x}.0.1"

    def address(self, machine: Machine) -> str:
        return f"10.{self._x}.0.{self._number(machine)}"

    def pod_subnet(self, machine: Machine) -> str:
        return f"10.{self._x}.{self._number(machine)}.0/24"

    def start(self) -> None:
        self._holder.start()
        own = os.readlink("/proc/self/ns/net")
        namespace = Path(f"/proc/{self._holder.pid}/ns/net")
        self._holder.eventually("a network apart", lambda: os.readlink(namespace) != own)
        self._ip("link", "add", _BRIDGE, "type", "bridge")
        self._ip("link", "set", _BRIDGE, "up")
        name = self.name_on_host
        self._plug_in("host", peer=name, pid=os.getpid())
        _run("ip", "address", "add", f"{self.host}/24", "dev", name)
        _run("ip", "link", "set", name, "up")

    def stop(self) -> None:
        """The interfaces of machines and of this one go too."""
        self._holder.stop()
        interface = Path("/sys/class/net") / self.name_on_host
        eventually(f"the end of {interface.name}", lambda: not interface.exists())

    def connect(self, *machines: Machine) -> None:
        """Once: give each its address, and let pods of all reach each other."""
        self._plugged.extend(machines)
        for machine in machines:
            self._plug_in(machine.name, peer="eth0", pid=machine.pid)
            machine.run("ip", "address", "add", f"{self.address(machine)}/24", "dev", "eth0")
            machine.run("ip", "link", "set", "eth0", "up")
            # No default route: what is not of the cluster is refused at once, not waited for.
            machine.run("ip", "route", "add", SERVICES, "via", self.host)
            _run("ip", "route", "add", self.pod_subnet(machine), "via", self.address(machine))
        for machine in machines:
            for other in machines:
                if other is not machine:
                    route = (self.pod_subnet(other), "via", self.address(other))
                    machine.run("ip", "route", "add", *route)

    def cut_off(self, machine: Machine) -> None:
        """Its link goes down; the machine itself runs on."""
        self._ip("link", "set", machine.name, "down")

    def reconnect(self, machine: Machine) -> None:
        self._ip("link", "set", machine.name, "up")

    def isolate(self, machine: Machine, *, edge_port: int, api_port: int) -> None:
        """From now on its pods reach each other, and of all else only `edge_port` of any pod.

        Its kubelet goes on: it reaches the API server, and is reached. The machine itself can look
        names up, because the LocalController looks up the GlobalManager's; its pods cannot.
        """
        own = ("--source", self.address(machine))
        tcp = ("--protocol", "tcp")
        host = ("--destination", self.host)
        filter_ = partial(machine.run, "iptables", "--wait")
        filter_("--new-chain", _ISOLATED)
        for allowed in (
            (*tcp, "--dport", str(edge_port)),
            (*tcp, *own, *host, "--dport", str(api_port)),
            (*tcp, *own, "--sport", str(_KUBELET_PORT)),
            ("--protocol", "udp", *own, *host, "--dport", "53"),
        ):
            filter_("--append", _ISOLATED, *allowed, "--jump", "RETURN")
        refuse = ("--jump", "REJECT", "--reject-with", "icmp-host-prohibited")
        filter_("--append", _ISOLATED, *refuse)
        for hook in _hooks(self.pod_subnet(machine)):
            filter_("--insert", *hook)

    def open_up(self, machine: Machine) -> None:
        """End `isolate`."""
        filter_ = partial(machine.run, "iptables", "--wait")
        for hook in _hooks(self.pod_subnet(machine)):
            filter_("--delete", *hook)
        filter_("--flush", _ISOLATED)
        filter_("--delete-chain", _ISOLATED)

    def _plug_in(self, name: str, *, peer: str, pid: int) -> None:
        """A cable from port `name` of the bridge to interface `peer` in the namespace of `pid`."""
        self._ip(
            *("link", "add", name, "type", "veth", "peer", "name", peer, "netns", str(pid)),
        )
        self._ip("link", "set", name, "master", _BRIDGE, "up")

    def _ip(self, *arguments: str) -> None:
        _run("nsenter", "--target", str(self._holder.pid), "--net", "ip", *arguments)

    def _number(self, machine: Machine) -> int:
        return _FIRST_NODE + self._plugged.index(machine)

    @property
    def name_on_host(self) -> str:
        return f"edgeai-test{self._x}"


def _hooks(pods: str) -> list[tuple[str, ...]]:
    """Where the chain of an isolated machine is called: for what leaves it, and for its pods."""
    return [
        ("OUTPUT", "--out-interface", "eth0", "--jump", _ISOLATED),
        ("FORWARD", "--source", pods, "!", "--destination", pods, "--jump", _ISOLATED),
    ]


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr}"


def _free_second_octet() -> int:
    """X of a 10.X.0.0/16 to which no route of this machine leads, the default route apart."""
    argv = ["ip", "-4", "-o", "route", "show", "table", "all"]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    taken = [network for line in said.splitlines() if (network := _destination(line))]
    for x in random.sample(_CANDIDATES, len(_CANDIDATES)):
        wanted = ipaddress.ip_network(f"10.{x}.0.0/16")
        if not any(wanted.overlaps(network) for network in taken):
            return x
    raise AssertionError("no 10.X.0.0/16 with X of 128…255 is free: this machine routes them all")


def _destination(route: str) -> ipaddress.IPv4Network | None:
    for word in route.split()[:2]:  # "10.0.0.0/8 via …", "local 10.0.0.1 dev …"
        try:
            return ipaddress.IPv4Network(word)
        except ValueError:
            continue
    return None
