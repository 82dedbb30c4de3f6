"""Where deploy/ is: in the checkout, or in the installed package, which holds a copy."""

from pathlib import Path
from typing import Final

from edgeai.cli.install.errors import InstallError

_PACKAGE: Final = Path(__file__).parents[2]
_PLACES: Final = (_PACKAGE.parent / "deploy", _PACKAGE / "deploy")
"""The checkout comes first: a copy beside it may be of another version."""


def deploy() -> Path:
    """The directory with base, components, crds and monitoring. Raises: InstallError"""
    for place in _PLACES:
        if (place / "base" / "kustomization.yaml").is_file():
            return place
    raise InstallError(f"the manifests are missing in {_PLACES[-1]}: install edgeai again")
