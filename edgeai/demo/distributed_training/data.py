"""Writes the images of the example.

    python3 -m edgeai.demo.distributed_training.data DIRECTORY

The script creates DIRECTORY with `train.csv` and `held_out.csv`. A user or `edgeai demo` runs the
script once before the job. The script needs scikit-learn. train.py does not need scikit-learn.
"""

import argparse
from pathlib import Path
from typing import Final

from edgeai.demo import digits, digits_source

HELD_OUT: Final = 0.25
"""Share of the images that no process uses for training."""


def write(directory: Path) -> None:
    """Write both files. Raises: OSError"""
    directory.mkdir(parents=True, exist_ok=True)
    training_part, held_out = digits_source.split(digits_source.load(), held_out=HELD_OUT)
    digits.save(directory / "train.csv", training_part)
    digits.save(directory / "held_out.csv", held_out)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the images of the example.")
    parser.add_argument("directory", type=Path, help="where the images go")
    write(parser.parse_args().directory)


if __name__ == "__main__":
    main()
