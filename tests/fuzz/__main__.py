"""python -m tests.fuzz [target …]: FUZZ_SECONDS (60) for each; crashes are kept in build/fuzz.

A crash that is fixed belongs into tests/fuzz/seeds, where each test run tries it again.
"""

import logging
import os
import random
import sys
from pathlib import Path
from typing import Final

from tests.fuzz.run import keep, run
from tests.fuzz.targets import targets

CRASHES: Final = Path(__file__).parents[2] / "build" / "fuzz"


def main(names: list[str]) -> int:
    logging.disable(logging.CRITICAL)
    seconds = float(os.environ.get("FUZZ_SECONDS", "60"))
    first = random.SystemRandom().randrange(2**32)
    failed = 0
    with targets() as known:
        for name in names or known:
            if name not in known:
                print(f"no target {name}; there are: {', '.join(known)}", file=sys.stderr)
                return 2
            inputs, crash = run(known[name], seconds=seconds, first=first)
            print(f"{name}: {inputs} inputs, first batch {first}", flush=True)
            if crash is not None:
                failed += 1
                print(f"{crash.text}\n{name}: broken by {keep(crash, CRASHES / name)}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
