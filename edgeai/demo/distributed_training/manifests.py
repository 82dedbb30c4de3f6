"""Fills in the placeholders of the example's manifests.

    python3 -m edgeai.demo.distributed_training.manifests FILES | kubectl apply -f -

A user can edit the .yaml files instead.
"""

from pathlib import Path
from typing import Final

from edgeai.cli import runtimes
from edgeai.demo import manifests

JOB: Final = Path(__file__).with_name("distributed_training.yaml")
ELASTIC_JOB: Final = Path(__file__).with_name("elastic.yaml")
MIRRORED_JOB: Final = Path(__file__).with_name("mirrored.yaml")
PARAMETER_SERVER_JOB: Final = Path(__file__).with_name("parameter_server.yaml")
EPOCHS: Final = 20
IN_IMAGE: Final = "python3"


class Placement(manifests.Placement, frozen=True, kw_only=True):
    python: Path
    """A Python that has PyTorch, or TensorFlow for a TFJob."""
    epochs: int = EPOCHS
    pause_seconds: float = 0.0


def main() -> None:
    parser = manifests.parser("directory that data.py wrote")
    group = parser.add_mutually_exclusive_group()
    for flag, template, text in (
        ("--elastic", ELASTIC_JOB, "PyTorch, started by torchrun"),
        ("--mirrored", MIRRORED_JOB, "TensorFlow; each process has a copy of the network"),
        ("--parameter-server", PARAMETER_SERVER_JOB, "TensorFlow; one process has the network"),
    ):
        group.add_argument(flag, action="store_const", dest="job", const=template, help=text)
    parser.set_defaults(job=JOB)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="default: %(default)s")
    parser.add_argument("--python", help="which has the framework; default: edgeai.cli.runtimes'")
    arguments = parser.parse_args()
    framework = "pytorch" if arguments.job in (JOB, ELASTIC_JOB) else "tensorflow"
    default = IN_IMAGE if arguments.image else runtimes.runtime(framework).python
    python = Path(arguments.python or default)
    placement = manifests.placed(Placement, arguments, python=python, epochs=arguments.epochs)
    print(manifests.render(arguments.job, placement))


if __name__ == "__main__":
    main()
