"""One folder of pure functions for each job kind. `KINDS` lists all kinds.

A sub-package that exports `KIND` is a kind. To add a kind, add its folder. The engine, the edge
side, the CRD generator and REST read `KINDS`.
"""

import importlib
import pkgutil
from collections import Counter
from collections.abc import Sequence

from globalmanager.contract import Kind


def _kinds() -> tuple[Kind, ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)
    kinds: list[Kind] = [importlib.import_module(f"{__name__}.{name}").KIND for name in names]
    check_types(kinds)
    return tuple(kinds)


def check_types(kinds: Sequence[Kind]) -> None:
    """Raises: ValueError when two kinds claim the same resource, also in different versions"""
    claims = Counter(str(type_) for kind in kinds for type_ in kind.resources)
    twice = sorted(resource for resource, number in claims.items() if number > 1)
    if twice:
        raise ValueError(f"several kinds claim {', '.join(twice)}; give each resource to one kind")


KINDS: tuple[Kind, ...] = _kinds()
