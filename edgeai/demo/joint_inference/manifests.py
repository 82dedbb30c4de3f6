"""Fills in the placeholders of the example's manifests.

    python3 -m edgeai.demo.joint_inference.manifests FILES | kubectl apply -f -

A user can edit joint_inference.yaml instead.
"""

from pathlib import Path
from typing import Any, Final

from edgeai.demo import manifests

TEMPLATE: Final = Path(__file__).with_name("joint_inference.yaml")


class Placement(manifests.Placement, frozen=True, kw_only=True):
    edge_node: str
    cloud_latency_ms: float = 0.0
    stream_rate: float = 0.0


def objects(placement: Placement) -> list[dict[str, Any]]:
    """The resources of the example, one dict for each. The JointInferenceService comes last."""
    return manifests.objects(TEMPLATE, placement)


def main() -> None:
    parser = manifests.parser("directory that train.py wrote")
    parser.add_argument("--edge-node", default="edge0", help="default: %(default)s")
    parser.add_argument(
        "--stream-rate", type=float, default=0, help="images per second; default: no limit"
    )
    arguments = parser.parse_args()
    placement = manifests.placed(
        Placement, arguments, edge_node=arguments.edge_node, stream_rate=arguments.stream_rate
    )
    print(manifests.render(TEMPLATE, placement))


if __name__ == "__main__":
    main()
