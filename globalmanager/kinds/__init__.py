"""One folder of pure functions for each job kind. `KINDS` lists all kinds.

A package in the folder of a family is a kind: it exports `KIND`. To add a kind, add its folder.
"""

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterable, Sequence

from globalmanager.contract import Kind


def _packages(path: Iterable[str], name: str) -> list[str]:
    modules = pkgutil.iter_modules(path, f"{name}.")
    return [module.name for module in modules if module.ispkg]


def _kinds() -> tuple[Kind, ...]:
    families = map(importlib.import_module, _packages(__path__, __name__))
    packages = [name for family in families for name in _packages(family.__path__, family.__name__)]
    by_kind = sorted(packages, key=lambda name: name.rpartition(".")[2])
    kinds: list[Kind] = [importlib.import_module(name).KIND for name in by_kind]
    check_types(kinds)
    return tuple(kinds)


def check_types(kinds: Sequence[Kind]) -> None:
    """Raises: ValueError when two kinds claim the same resource, also in different versions"""
    claims = Counter(str(type_) for kind in kinds for type_ in kind.definition.resources)
    twice = sorted(resource for resource, number in claims.items() if number > 1)
    if twice:
        raise ValueError(f"several kinds claim {', '.join(twice)}; give each resource to one kind")


KINDS: tuple[Kind, ...] = _kinds()
