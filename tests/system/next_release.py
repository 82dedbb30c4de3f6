"""Runs a program of edgeai as its next release could be.

    python3 -m tests.system.next_release VERSIONS MODULE [ARGUMENT ...]

VERSIONS are the protocol versions that it speaks, like 1,2. It adds a field to each frame and to
each body, and a LocalController a step to its ledger. The rest is the program itself: the tests
of upgrades run it beside the one that is installed.
"""

import runpy
import sys
from typing import Any, Final, NamedTuple

import msgspec
from sqlite_utils import Database

from common import wire
from localcontroller.ledger import schema
from localcontroller.ledger.migrations import MIGRATIONS

Release = tuple[str, ...]
"""The arguments of Python that make a program of edgeai one of this release."""
THIS: Final[Release] = ()
NEXT: Final[Release] = ("tests.system.next_release", "1,2")


class Skew(NamedTuple):
    manager: Release
    node: Release


SKEWS: Final = {
    "one release": Skew(THIS, THIS),
    "newer GlobalManager": Skew(NEXT, THIS),
    "newer LocalController": Skew(THIS, NEXT),
}
NEWS: Final = {"since": 2, "list": [1, "two", None]}


class Encoder:
    """Encodes structs with a field more than this release knows."""

    def encode(self, value: Any) -> bytes:
        if isinstance(value, msgspec.Struct):
            value = {**msgspec.to_builtins(value, builtin_types=(bytes,)), "ofNextRelease": NEWS}
        return msgspec.msgpack.encode(value)


def of_next_release(db: Database) -> None:
    for table in ("meta", "tasks", "grants", "workers", "processes"):
        db.execute(f"ALTER TABLE {table} ADD COLUMN of_next_release INTEGER NOT NULL DEFAULT 0")


def main() -> None:
    versions, module = sys.argv[1:3]
    del sys.argv[1:3]
    vars(wire)["VERSIONS"] = tuple(int(version) for version in versions.split(","))
    vars(wire)["_encoder"] = Encoder()
    MIGRATIONS()(of_next_release)
    schema.STEPS.append(of_next_release.__name__)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
