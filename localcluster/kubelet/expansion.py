"""Rewrites a container's command, args and environment for a local process.

Three rules, all pure: Kubernetes' `$(VAR)` expansion; mount paths are replaced by the volumes' real
paths; Service host names are replaced by addresses. Called by launch. Reads neither the API nor the
disk nor the environment of this process.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")

# A mount path is rewritten only where a path begins: not in the middle of a longer path, not in the
# authority of a URL, not after an unexpanded variable.
_PATH_BEFORE: Final = r"(?:(?<![\w.~%+@/)}\]*?-])|(?<=file://))"
_PATH_AFTER: Final = r"(?![\w.~%+@-])"

# A host name is rewritten only as a whole word: not as part of a longer name, a path or an image.
_HOST_BEFORE: Final = r"(?<![\w./-])|(?<=://)"
_HOST_AFTER: Final = r"(?![\w-]|\.\w)"
_QUALIFIERS: Final = ("svc", "svc.cluster.local")
_HOST_VARIABLE: Final = re.compile(
    r"(?:^|_)(?:HOST|HOSTNAME|ADDR|ADDRESS|IP|SERVER|ENDPOINT)$", re.IGNORECASE
)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)`. `$$` becomes `$`; an undefined `$(NAME)` stays as it is.

    Source: the Kubernetes API reference of Container.args and EnvVar.value.
    """

    def value(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else variables.get(name, match[0])

    return _REFERENCE.sub(value, text)


class PathRewriter:
    """Replaces mount paths by real ones, the longest mount first.

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
    """A Service and the address that replaces its names."""

    name: str
    namespace: str
    address: str


class HostRewriter:
    """Replaces the DNS names of Services, as seen from one namespace, by addresses.

    A Service name without namespace can be any word. So it counts as a host only in a URL, before
    a port, or as the whole value of a variable named like a host (MASTER_ADDR, BIG_MODEL_IP).
    """

    def __init__(self, namespace: str, services: Iterable[ServiceHost]) -> None:
        self._addresses: dict[str, str] = {}
        self._bare: dict[str, str] = {}
        for service in services:
            qualified = f"{service.name}.{service.namespace}"
            self._addresses[qualified] = service.address
            for suffix in _QUALIFIERS:
                self._addresses[f"{qualified}.{suffix}"] = service.address
            if service.namespace == namespace:
                self._bare[service.name] = service.address
        self._qualified_names = _alternatives(self._addresses, "(?:{before})({names}){after}")
        self._bare_names = _alternatives(
            self._bare, "(?:(?<=://)({names})(?=[:/?#]|$)|(?:{before})({names})(?=:[0-9]))"
        )

    def __call__(self, text: str, *, variable: str = "") -> str:
        """Args: variable: name of the environment variable whose value `text` is"""
        if text in self._bare and _HOST_VARIABLE.search(variable):
            return self._bare[text]
        if self._qualified_names is not None:
            text = self._qualified_names.sub(lambda match: self._addresses[match[1]], text)
        if self._bare_names is not None:
            text = self._bare_names.sub(lambda match: self._bare[match[1] or match[2]], text)
        return text


def _alternatives(names: Iterable[str], pattern: str) -> re.Pattern[str] | None:
    longest_first = sorted(names, key=len, reverse=True)
    if not longest_first:
        return None
    joined = "|".join(re.escape(name) for name in longest_first)
    return re.compile(pattern.format(names=joined, before=_HOST_BEFORE, after=_HOST_AFTER))
