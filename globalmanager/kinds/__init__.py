"""One folder of pure functions for each job kind. `KINDS` lists all kinds.

A package in the folder of a family is a kind: it exports `KIND`. To add a kind, add its folder.
"""

import importlib
import pkgutil
from collections import Counter
from collections.abc import Sequence
from typing import Final

from globalmanager.contract import Kind

FAMILIES: Final = ("edge", "elastic", "training")


def _kinds() -> tuple[Kind, ...]:
    packages = [
        f"{__name__}.{family}.{module.name}"
        for family in FAMILIES
        for path in __path__
        for module in pkgutil.iter_modules([f"{path}/{family}"])
        if module.ispkg
    ]
    by_name = sorted(packages, key=lambda package: package.rpartition(".")[2])
    kinds: list[Kind] = [importlib.import_module(package).KIND for package in by_name]
    check_types(kinds)
    return tuple(kinds)


def check_types(kinds: Sequence[Kind]) -> None:
    """Raises: ValueError when two kinds claim the same resource, also in different versions"""
    claims = Counter(str(type_) for kind in kinds for type_ in kind.resources)
    twice = sorted(resource for resource, number in claims.items() if number > 1)
    if twice:
        raise ValueError(f"several kinds claim {', '.join(twice)}; give each resource to one kind")


KINDS: tuple[Kind, ...] = _kinds()
