"""Fills in the placeholders of the example's manifests.

    python3 -m edgeai.demo.elastic_training.manifests FILES | kubectl apply -f -

A user can edit the .yaml files instead.
"""

from pathlib import Path
from typing import Final

from edgeai.demo import manifests

JOB: Final = Path(__file__).with_name("elastic_training.yaml")
SCALE_OUT: Final = Path(__file__).with_name("scale_out.yaml")
SCALE_IN: Final = Path(__file__).with_name("scale_in.yaml")
HOROVOD_JOB: Final = Path(__file__).with_name("horovod.yaml")
STEPS: Final = 460
"""Twenty epochs."""


class Placement(manifests.Placement, frozen=True, kw_only=True):
    steps: int = STEPS
    pause_seconds: float = 0.0


class HorovodPlacement(Placement, frozen=True, kw_only=True):
    attach_mode: str = "kubexec"
    network_interface: str = "eth0"
    worker_command: str = '["sleep", "infinity"]'
    horovodrun: Path = Path("horovodrun")


def main() -> None:
    parser = manifests.parser("directory of the images")
    group = parser.add_mutually_exclusive_group()
    for flag, template, text in (
        ("--scale-out", SCALE_OUT, "two workers more"),
        ("--scale-in", SCALE_IN, "without worker 1"),
    ):
        group.add_argument(flag, action="store_const", dest="template", const=template, help=text)
    parser.set_defaults(template=JOB)
    parser.add_argument("--steps", type=int, default=STEPS, help="default: %(default)s")
    parser.add_argument("--pause-seconds", type=float, default=0.0, help="after each step")
    arguments = parser.parse_args()
    further = {"steps": arguments.steps, "pause_seconds": arguments.pause_seconds}
    print(manifests.render(arguments.template, manifests.placed(Placement, arguments, **further)))


if __name__ == "__main__":
    main()
