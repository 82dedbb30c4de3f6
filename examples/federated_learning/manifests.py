"""The manifests of the example with its placeholders filled in.

    python3 -m examples.federated_learning.manifests FILES | kubectl apply -f -

Called by `edgeai demo` and by tests too; a person may as well edit federated_learning.yaml.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Final

import msgspec

from examples import manifests
from examples.federated_learning.aggregator import ROUNDS

TEMPLATE: Final = Path(__file__).with_name("federated_learning.yaml")


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the placeholders, see the head of federated_learning.yaml."""

    files: Path
    python: Path = Path(sys.executable)
    checkout: Path = Path(__file__).parents[2]
    image: str = "edgeai/example"
    edge_0: str = "edge0"
    edge_1: str = "edge1"
    edge_2: str = "edge2"
    cloud_node: str = "cloud0"
    namespace: str = "default"
    rounds: int = ROUNDS
    gone_after_seconds: float = 60.0
    training_seconds: float = 0.0


def render(placement: Placement) -> str:
    """federated_learning.yaml for `placement`, as text for `kubectl apply -f -`."""
    return manifests.render(TEMPLATE, placement)


def objects(placement: Placement) -> list[dict[str, Any]]:
    """The same as one dict per resource; the FederatedLearningJob comes last."""
    return manifests.objects(TEMPLATE, placement)


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the example's manifests.")
    parser.add_argument("files", type=Path, help="directory that data.py wrote")
    parser.add_argument(
        "--edge-nodes",
        nargs=3,
        default=["edge0", "edge1", "edge2"],
        metavar="NODE",
        help="default: edge0 edge1 edge2",
    )
    parser.add_argument("--cloud-node", default="cloud0", help="default: %(default)s")
    parser.add_argument("--namespace", default="default", help="default: %(default)s")
    parser.add_argument("--image", help="built from deploy/containers; not for the local cluster")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="default: %(default)s")
    chosen = parser.parse_args()
    placement = Placement(
        files=chosen.files.absolute(),
        edge_0=chosen.edge_nodes[0],
        edge_1=chosen.edge_nodes[1],
        edge_2=chosen.edge_nodes[2],
        cloud_node=chosen.cloud_node,
        namespace=chosen.namespace,
        rounds=chosen.rounds,
    )
    if chosen.image:
        python, checkout = manifests.IN_IMAGE
        placement = msgspec.structs.replace(
            placement, image=chosen.image, python=python, checkout=checkout
        )
    print(render(placement))


if __name__ == "__main__":
    main()
