"""One folder of pure functions for each job kind; `KINDS` registers them.

A sub-package that exports `KIND` is a kind: adding one is adding its folder. Read by the engine,
the edge side, the CRD generator and REST.
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
    """Raises: ValueError when two kinds claim one resource, be it in different versions"""
    claims = Counter(str(type_) for kind in kinds for type_ in kind.resources)
    twice = sorted(resource for resource, number in claims.items() if number > 1)
    if twice:
        raise ValueError(f"several kinds claim {', '.join(twice)}; give each resource to one kind")


KINDS: tuple[Kind, ...] = _kinds()
