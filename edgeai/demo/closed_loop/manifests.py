"""Fills in the placeholders of the example's manifests.

A user can edit closed_loop.yaml instead.
"""

from pathlib import Path
from typing import Any, Final

from edgeai.demo import manifests

TEMPLATE: Final = Path(__file__).with_name("closed_loop.yaml")


class Placement(manifests.Placement, frozen=True, kw_only=True):
    url: str
    sha256: str


def objects(placement: Placement) -> list[dict[str, Any]]:
    """The resources of the example, one dict for each. The JointInferenceService comes last."""
    return manifests.objects(TEMPLATE, placement)
