"""The product's images, as recipes of the container files in deploy/containers.

python -m tests.e2e.images    # makes them and the one of PyTorch, and installs what nodes need
"""

import sys
from pathlib import Path
from typing import Final

from common.version import VERSION
from edgeai.cli.runtimes import RuntimeUnavailable, runtime
from tests.cluster import packages
from tests.cluster.binaries import Unavailable
from tests.cluster.images import Images, Recipe
from tests.e2e import pytorch

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
        print(pytorch.archive(runtime("pytorch").install()))
    except (Unavailable, RuntimeUnavailable) as unavailable:
        sys.exit(f"tests.e2e.images: {unavailable}")
