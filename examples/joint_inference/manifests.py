"""The manifests of the example with its placeholders filled in.

    python3 -m examples.joint_inference.manifests FILES | kubectl apply -f -

Called by `edgeai demo` and by tests too; a person may as well edit joint_inference.yaml.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from examples import manifests

TEMPLATE: Final = Path(__file__).with_name("joint_inference.yaml")


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the placeholders, see the head of joint_inference.yaml."""

    files: Path
    python: Path = Path(sys.executable)
    checkout: Path = Path(__file__).parents[2]
    image: str = "edgeai/example"
    edge_node: str
    cloud_node: str
    namespace: str = "default"
    cloud_latency_ms: float = 0.0
    stream_rate: float = 0.0


def render(placement: Placement) -> str:
    """joint_inference.yaml for `placement`, as text for `kubectl apply -f -`."""
    return manifests.render(TEMPLATE, placement)


def objects(placement: Placement) -> list[dict[str, Any]]:
    """The same as one dict per resource."""
    return manifests.objects(TEMPLATE, placement)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the example's manifests.")
    parser.add_argument("files", type=Path, help="directory that train.py wrote")
    parser.add_argument("--edge-node", default="edge0", help="default: %(default)s")
    parser.add_argument("--cloud-node", default="cloud0", help="default: %(default)s")
    parser.add_argument("--namespace", default="default", help="default: %(default)s")
    parser.add_argument("--image", help="built from deploy/containers; not for the local cluster")
    parser.add_argument(
        "--stream-rate", type=float, default=0, help="images per second; default: no limit"
    )
    chosen = parser.parse_args()
    placement = Placement(
        files=chosen.files.absolute(),
        edge_node=chosen.edge_node,
        cloud_node=chosen.cloud_node,
        namespace=chosen.namespace,
        stream_rate=chosen.stream_rate,
    )
    if chosen.image:
        python, checkout = manifests.IN_IMAGE
        placement = msgspec.structs.replace(
            placement, image=chosen.image, python=python, checkout=checkout
        )
    print(render(placement))


if __name__ == "__main__":
    main()
