"""Rewrites a container's command, args and environment for a local process.

The module has three pure rules. The first rule expands `$(VAR)` as Kubernetes does. The second rule
replaces mount paths by the real paths of the volumes. The third rule replaces host names of
Services by addresses, and the ports that `rendezvous` names. `launch` calls this module. The module
does not read the API, the disk or the environment of this process.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

import msgspec

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")

# The rewriter replaces a mount path only where a path begins: not in the middle of a longer path,
# not in the host of a URL, not after an unexpanded variable.
_PATH_BEFORE: Final = r"(?:(?<![\w.~%+@/)}\]*?-])|(?<=file://))"
_PATH_AFTER: Final = r"(?![\w.~%+@-])"

# The rewriter replaces a host name only as a whole word: not as a part of a longer name, of a path
# or of an image name.
_HOST_BEFORE: Final = r"(?<![\w./-])|(?<=://)"
_HOST_AFTER: Final = r"(?![\w-]|\.\w)"
_QUALIFIERS: Final = ("svc", "svc.cluster.local")
# HOSTNAME alone is the name of the container's own pod.
_HOST_VARIABLE: Final = re.compile(
    r"(?:(?:^|_)(?:HOST|ADDR|ADDRESS|IP|SERVER|ENDPOINT)|_HOSTNAME)$", re.IGNORECASE
)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace each `$(NAME)` by the value of the variable NAME.

    `$$` becomes `$`. If the variable NAME does not exist, `$(NAME)` stays.

    Source: the Kubernetes API reference of Container.args and EnvVar.value.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else variables.get(name, match[0])

    return _REFERENCE.sub(value, text)


class PathRewriter:
    """Replaces mount paths by real paths, beginning with the longest mount path.

    Args:
        mounts: mount path in the container -> path on this machine, both absolute
    """

    def __init__(self, mounts: Mapping[str, str]) -> None:
        self._mounts = {path.rstrip("/"): real for path, real in mounts.items()}
        paths = sorted(self._mounts, key=len, reverse=True)
        pattern = "|".join(re.escape(path) for path in paths)
        self._pattern = re.compile(f"{_PATH_BEFORE}({pattern}){_PATH_AFTER}") if paths else None

    def __call__(self, text: str) -> str:
        if self._pattern is None:
            return text
        return self._pattern.sub(lambda match: self._mounts[match[1]], text)


class ServiceHost(msgspec.Struct, frozen=True):
    """A Service, and the address that replaces its host names."""

    name: str
    namespace: str
    address: str
    is_headless: bool = False


class Endpoint(msgspec.Struct, frozen=True):
    """A port of a headless Service."""

    host: ServiceHost
    port: int


class HostRewriter:
    """Replaces the DNS names of Services by addresses, for the pods of one namespace.

    A Service name without namespace may be an ordinary word. So the rewriter replaces such a name
    only in a URL, before a port, or as the whole value of a variable that stands for a
    host (MASTER_ADDR, BIG_MODEL_IP).
    """

    def __init__(self, namespace: str, services: Iterable[ServiceHost]) -> None:
        qualified_names: dict[str, ServiceHost] = {}
        self._bare: dict[str, ServiceHost] = {}
        self._moved: Mapping[Endpoint, int] = {}
        for service in services:
            qualified = f"{service.name}.{service.namespace}"
            qualified_names[qualified] = service
            for suffix in _QUALIFIERS:
                qualified_names[f"{qualified}.{suffix}"] = service
            if service.namespace == namespace:
                self._bare[service.name] = service
        self._rules = [
            *_rules(qualified_names, "(?:{before})({names}){after}"),
            *_rules(
                self._bare, "(?:(?<=://)({names})(?=[:/?#]|$)|(?:{before})({names})(?=:[0-9]))"
            ),
        ]

    def move_ports(self, moved: Mapping[Endpoint, int]) -> None:
        """From now on replace these ports, too, where they follow the name of their host."""
        self._moved = moved

    def endpoints(self, text: str) -> set[Endpoint]:
        """The ports of headless Services in a text, each after the name of its host and a colon."""
        found = set()
        for pattern, hosts in self._rules:
            for match in pattern.finditer(text):
                host = hosts[_name(match)]
                if match["port"] and host.is_headless:
                    found.add(Endpoint(host, int(match["port"])))
        return found

    def __call__(self, text: str, *, variable: str = "") -> str:
        """A copy of `text` with addresses for host names.

        Args:
            variable: name of the environment variable that has the value `text`; "" for other texts
        """
        if text in self._bare and _HOST_VARIABLE.search(variable):
            return self._bare[text].address
        for pattern, hosts in self._rules:
            text = pattern.sub(partial(self._replaced, hosts), text)
        return text

    def _replaced(self, hosts: Mapping[str, ServiceHost], match: re.Match[str]) -> str:
        host, port = hosts[_name(match)], match["port"]
        if port is None:
            return host.address
        return f"{host.address}:{self._moved.get(Endpoint(host, int(port)), port)}"


def _name(match: re.Match[str]) -> str:
    return str(next(filter(None, match.groups())))


def _rules(
    hosts: Mapping[str, ServiceHost], pattern: str
) -> Iterator[tuple[re.Pattern[str], Mapping[str, ServiceHost]]]:
    """A pattern for any of the names, and for a port (`port`) that follows; with the hosts."""
    if hosts:
        longest_first = sorted(hosts, key=len, reverse=True)
        names = "|".join(re.escape(name) for name in longest_first)
        host = pattern.format(names=names, before=_HOST_BEFORE, after=_HOST_AFTER)
        yield re.compile(f"{host}(?::(?P<port>[0-9]{{1,5}})(?![0-9]))?"), hosts
