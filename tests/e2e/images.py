"""The product's images, as recipes of the container files in deploy/containers."""

from pathlib import Path
from typing import Final

from tests.cluster.images import Recipe

CONTAINERFILE: Final = Path(__file__).parents[2] / "deploy" / "containers" / "Containerfile"
VERSION: Final = "0.1.0"


def recipes() -> list[Recipe]:
    return [
        Recipe(
            name=f"docker.io/edgeai/{target}:{VERSION}",
            containerfile=CONTAINERFILE,
            target=target,
        )
        for target in ("globalmanager", "localcontroller", "example")
    ]
