"""Fills in the placeholders of the example's manifests.

    python3 -m edgeai.demo.federated_learning.manifests FILES | kubectl apply -f -

A user can edit federated_learning.yaml instead.
"""

from pathlib import Path
from typing import Any, Final

from edgeai.demo import manifests
from edgeai.demo.federated_learning.aggregator import ROUNDS
from edgeai.demo.federated_learning.files import EDGES

TEMPLATE: Final = Path(__file__).with_name("federated_learning.yaml")


class Placement(manifests.Placement, frozen=True, kw_only=True):
    edge_0: str = EDGES[0]
    edge_1: str = EDGES[1]
    edge_2: str = EDGES[2]
    rounds: int = ROUNDS
    gone_after_seconds: float = 60.0
    training_seconds: float = 0.0


def objects(placement: Placement) -> list[dict[str, Any]]:
    """The resources of the example, one dict for each. The FederatedLearningJob comes last."""
    return manifests.objects(TEMPLATE, placement)


def main() -> None:
    parser = manifests.parser("directory that data.py wrote")
    parser.add_argument(
        "--edge-nodes",
        nargs=len(EDGES),
        default=EDGES,
        metavar="NODE",
        help=f"default: {' '.join(EDGES)}",
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="default: %(default)s")
    arguments = parser.parse_args()
    nodes = {f"edge_{number}": node for number, node in enumerate(arguments.edge_nodes)}
    placement = manifests.placed(Placement, arguments, rounds=arguments.rounds, **nodes)
    print(manifests.render(TEMPLATE, placement))


if __name__ == "__main__":
    main()
