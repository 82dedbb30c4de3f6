"""Fills in the placeholders of the example's manifests.

    python3 -m examples.distributed_training.manifests FILES | kubectl apply -f -

`edgeai demo` and tests call this module, too. A user can edit the two .yaml files instead.
"""

from pathlib import Path
from typing import Any, Final

from edgeai import runtimes
from examples import manifests

JOB: Final = Path(__file__).with_name("distributed_training.yaml")
ELASTIC_JOB: Final = Path(__file__).with_name("elastic.yaml")
EPOCHS: Final = 20
IN_IMAGE: Final = "python3"


class Placement(manifests.Placement, frozen=True, kw_only=True):
    python: Path
    """A Python that has PyTorch."""
    epochs: int = EPOCHS
    pause_seconds: float = 0.0


def job(placement: Placement, template: Path = JOB) -> dict[str, Any]:
    """The PyTorchJob of the example."""
    (object_,) = manifests.objects(template, placement)
    return object_


def main() -> None:
    parser = manifests.parser("directory that data.py wrote")
    parser.add_argument("--elastic", action="store_true", help="started by torchrun")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="default: %(default)s")
    parser.add_argument("--python", help="a Python that has PyTorch; default: edgeai.runtimes'")
    chosen = parser.parse_args()
    default = IN_IMAGE if chosen.image else runtimes.runtime("pytorch").python
    python = Path(chosen.python or default)
    placement = manifests.placed(Placement, chosen, python=python, epochs=chosen.epochs)
    print(manifests.render(ELASTIC_JOB if chosen.elastic else JOB, placement))


if __name__ == "__main__":
    main()
