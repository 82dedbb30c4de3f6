"""The shipped code holds its promises in simulated runs."""

import secrets

import pytest

from tests.simulation.driver import simulate

SEEDS_OF_A_PART = 8
STEPS = 2000


@pytest.mark.parametrize("part", range(2))
def test_no_promise_is_broken(part: int) -> None:
    for seed in range(1 + part * SEEDS_OF_A_PART, 1 + (part + 1) * SEEDS_OF_A_PART):
        check(seed)


def test_no_promise_is_broken_with_a_fresh_seed() -> None:
    check(secrets.randbelow(10**9))


def check(seed: int) -> None:
    outcome = simulate(seed, STEPS)
    log = "\n".join(outcome.log)
    assert not outcome.problem, (
        f"{log}\n{outcome.problem}\nagain: make simulate SEED={seed} STEPS={STEPS}"
    )
