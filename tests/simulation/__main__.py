"""Runs the simulation: many seeds on several processes, or one seed again.

python -m tests.simulation                        seeds 1 to 200 and 301 to 320, 4,500 steps each
python -m tests.simulation --seed=17 --steps=5000 one run; prints its log when it fails
"""

import argparse
import functools
import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from tests.simulation.driver import FIRST_WITH_ROUNDS, Outcome, simulate

SEEDS: Final = 200
WITH_ROUNDS: Final = 20
STEPS: Final = 4500
PROCESSES: Final = 2


def main() -> int:
    options = _options()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.seed is not None:
        return _report([simulate(options.seed, options.steps)], options.steps)
    seeds: Sequence[int] = range(options.first, options.first + options.seeds)
    seeds = [*seeds, *range(FIRST_WITH_ROUNDS, FIRST_WITH_ROUNDS + options.rounds)]
    if options.until_broken:
        outcomes = (simulate(seed, options.steps) for seed in seeds)
        return _report(_until_broken(outcomes), options.steps)
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        runs = pool.imap_unordered(functools.partial(simulate, steps=options.steps), seeds)
        return _report(runs, options.steps)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds")
    parser.add_argument(
        "--rounds", type=int, default=WITH_ROUNDS, help="number of seeds with incremental learning"
    )
    parser.add_argument("--steps", type=int, default=STEPS, help="steps with faults of each seed")
    parser.add_argument("--until-broken", action="store_true", help="end with the first failure")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    return parser.parse_args()


def _until_broken(outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    for outcome in outcomes:
        yield outcome
        if outcome.problem:
            return


def _report(outcomes: "Iterator[Outcome] | list[Outcome]", steps: int) -> int:
    """Print the outcomes. Returns: exit code"""
    began, total, count, broken = time.monotonic(), 0, 0, 0
    for outcome in outcomes:
        total, count = total + outcome.steps, count + 1
        print(
            f"seed {outcome.seed}: {outcome.steps} steps, {outcome.seconds:.0f} virtual seconds, "
            f"digest {outcome.digest:08x}" + (", BROKEN" if outcome.problem else ""),
            flush=True,
        )
        if outcome.problem:
            broken += 1
            print("\n".join(outcome.log))
            print(f"\n{outcome.problem}")
            print(f"again: make simulate SEED={outcome.seed} STEPS={steps}", flush=True)
    seconds = time.monotonic() - began
    rate = f", {total / seconds:,.0f} steps/s" if seconds > 1 else ""
    print(f"{count} seeds, {total:,} steps in {seconds:.0f} s{rate}: {broken} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
