"""Rewrites a container's command, args and environment for a local process.

The module has three pure rules. The first rule expands `$(VAR)` as Kubernetes does. The second rule
replaces mount paths by the real paths of the volumes. The third rule replaces host names of
Services by addresses. `launch` calls this module. The module does not read the API, the disk or
the environment of this process.
"""

import re
from collections.abc import Iterable, Mapping
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


class HostRewriter:
    """Replaces the DNS names of Services by addresses, for the pods of one namespace.

    A Service name without namespace may be an ordinary word. So the rewriter replaces such a name
    only in a URL, before a port, or as the whole value of a variable that stands for a
    host (MASTER_ADDR, BIG_MODEL_IP).
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
        """A copy of `text` with addresses for host names.

        Args:
            variable: name of the environment variable that has the value `text`; "" for other texts
        """
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
