"""Obtains what nodes need of a machine: to be root, kernel namespaces, and Debian's packages.

Called before a cluster with nodes is made. It installs packages that are missing, where it can.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from edgeai.cli import debian
from tests.cluster.binaries import Unavailable, say
from tests.cluster.containerd import CNI_PLUGINS

# What is looked for -> the package that brings it.
_NEEDED: Final = {
    "containerd": "containerd",
    "runc": "runc",
    str(CNI_PLUGINS / "bridge"): "containernetworking-plugins",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "socat": "socat",  # kubectl port-forward
    "ethtool": "ethtool",
    "dnsmasq": "dnsmasq-base",
    "debootstrap": "debootstrap",
    "buildah": "buildah",
    "ip": "iproute2",
}
_PATH: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def obtain() -> None:
    """Raises: Unavailable"""
    if os.geteuid() != 0:
        raise Unavailable("nodes are made of kernel namespaces, which takes root: run as root")
    if missing := _missing():
        say(f"installing {' '.join(missing)}")
        try:
            debian.install(missing)
        except debian.PackagesUnavailable as error:
            raise Unavailable(f"nodes cannot be made: {error}") from error
    _check_namespaces()


def _missing() -> list[str]:
    return [package for what, package in _NEEDED.items() if not shutil.which(what, path=_PATH)]


def _check_namespaces() -> None:
    """Some containers let even root make none."""
    make = ("unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--mount-proc")
    bridge = ("ip", "link", "add", "bridge", "type", "bridge")
    done = subprocess.run([*make, *bridge], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(
            f"nodes need namespaces and bridges, which this machine refuses ({done.stderr.strip()})"
            ": use a virtual machine, or a privileged container"
        )
    if not Path("/sys/fs/cgroup").is_dir():
        raise Unavailable("nodes need control groups: mount them at /sys/fs/cgroup")
