"""The product's images, as recipes of the container files in deploy/containers.

python -m tests.e2e.images    # makes them, and installs what nodes need; prints their archive
"""

import sys
from pathlib import Path
from typing import Final

from common.version import VERSION
from tests.cluster import packages
from tests.cluster.binaries import Unavailable
from tests.cluster.images import Images, Recipe

CONTAINERFILE: Final = Path(__file__).parents[2] / "deploy" / "containers" / "Containerfile"


def recipes() -> list[Recipe]:
    return [
        Recipe(
            name=f"docker.io/edgeai/{target}:{VERSION}",
            containerfile=CONTAINERFILE,
            target=target,
        )
        for target in ("globalmanager", "localcontroller", "worker", "example")
    ]


if __name__ == "__main__":
    try:
        packages.obtain()
        print(Images().archive(recipes()))
    except Unavailable as unavailable:
        sys.exit(f"tests.e2e.images: {unavailable}")
