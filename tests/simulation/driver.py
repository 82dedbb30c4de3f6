"""One run from one seed: chaos for a number of steps, then quiet, with all checks."""

import gc
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog

from localcontroller.ledger.attempts import MAX_WORKER_PROCESSES
from localcontroller.workers.intake import SPEAKS_WITHIN_S
from tests.simulation.cluster import NODES, SimulatedCluster
from tests.simulation.crashfree import CALM_S, differences, end_of, reference_of, unended
from tests.simulation.round_oracle import ROUNDS
from tests.simulation.rules import (
    OF_MODELS,
    WEIGHTS,
    WITH_FLEETS,
    WITH_ROLLOUTS,
    WITH_ROUNDS,
    Rules,
    Weights,
)
from tests.simulation.world import BrokenInvariant, VirtualTime, is_killing

RULE_EVERY: Final = (12, 36)
"""Steps between two rules, on average; each seed has one of them. With 12, many faults meet, and a
node has a connection for a tenth of the time. With 36 it has one for half of the time, so that long
sequences run to their end.
"""
FIRST_WITH_FLEETS: Final = 101
"""The runs of this and further seeds have fleets, too."""
FIRST_WITH_ROLLOUTS: Final = 151
"""The runs of this and further seeds have rollouts of a Model, too."""
FIRST_WITH_ROUNDS: Final = 301
"""The runs of this and further seeds have rounds of incremental learning, and no fleets."""
LONG_S: Final = 2.0  # when nothing happens for so long, the next rule comes
SETTLE_S: Final = 400.0  # after the last fault: the longest delays of reconnection are over
ABSENT_S: Final = 100.0  # the session ends after 40 s, and the grace time after 40 s more
BACK_S: Final = 60.0  # the longest delay of a reconnection is 30 s
QUIET_S: Final = 120.0
SUSPENDED_S: Final = 60.0
MANY: Final = 50  # samples that meet each trigger by their number
POD_ENDS_S: Final = 20.0  # at most; while a job is suspended, its pods must end
OLD: Final = 0.1  # how often a worker starts so often that its processes become one sum
MAX_CALM_STEPS: Final = 50_000  # of one wait without faults; ten times as many as are seen


class Run:
    """Args: weights: how often each rule is drawn"""

    def __init__(self, cluster: SimulatedCluster, weights: Weights = WEIGHTS) -> None:
        self.world, self.cluster, self.rules = cluster.world, cluster, Rules(cluster)
        self._weights = weights

    def step(self) -> None:
        self.world.step()
        self.cluster.oracle.check()

    def chaos(self, steps: int, *, rule_every: int) -> None:
        """Args: rule_every: steps between two rules, on average"""
        rules, weights = list(self._weights), list(self._weights.values())
        draw = self.world.random
        for _ in range(steps):
            if draw.random() * rule_every < 1 or self.world.next_event_s() > LONG_S:
                rule = draw.choices(rules, weights)[0]
                self.world.note(f"rule {rule.__name__}")
                rule(self.rules)
            self.step()

    def run_for(self, seconds: float) -> None:
        end, last = self.world.now + seconds, self.world.steps + MAX_CALM_STEPS
        while self.world.now + self.world.next_event_s() <= end:
            self.step()
            if self.world.steps > last:
                writes = self.cluster.api.writes
                self.cluster.oracle.fail("I12", f"no end after {MAX_CALM_STEPS} steps, {writes=}")
        self.world.now = end

    def settle(self) -> None:
        """End all faults, wait, and check what must then be true."""
        self.world.note("all faults are over")
        cluster, oracle = self.cluster, self.cluster.oracle
        cluster.heal()
        self.run_for(SETTLE_S)
        if self.world.chance(0.3):
            self._check_absence(self.world.random.choice(sorted(cluster.nodes)))
        if self.world.chance(OLD):
            self._grow_old()
        self._finish_rollout()
        self._finish_round()
        self._check_settled()
        before = oracle.quiet_writes()
        self.run_for(QUIET_S)
        if oracle.quiet_writes() != before:
            changed = set(oracle.quiet_writes().items()) ^ set(before.items())
            oracle.fail("I12", f"nothing happens, and the API has writes: {sorted(changed)}")
        self._check_crash_free()

    def _check_absence(self, node: str) -> None:
        """A node is off for longer than the grace time. Then it comes back."""
        self.cluster.stop_controller(node, how="power")
        self.run_for(ABSENT_S)
        self.cluster.oracle.check_contact(node, is_connected=False)
        self.cluster.start_controller(node)
        self.run_for(BACK_S)

    def _finish_rollout(self) -> None:
        """The workers of the rolled fleet report until it has its last version everywhere."""
        self.cluster.edit_rollout(paused=False)
        for _ in range(12 if self.cluster.oracle.rollout() else 0):
            self.rules.report_models()
            self.run_for(20.0)

    def _finish_round(self) -> None:
        """The workers of incremental learning do their work until the job waits for samples. While
        the job is suspended, nothing goes on.
        """
        if not list(self.cluster.api.of(ROUNDS)):
            return
        rounds = self.rules.rounds
        rounds.add_samples(MANY)
        self._suspend_rounds(SUSPENDED_S)
        for _ in range(48):
            rounds.work(may_fail=False)
            self.rules.load_of_round()
            self.run_for(20.0)
            if not rounds.are_under_way:
                break
            if self.world.chance(0.3):
                self._suspend_rounds(self.world.random.random() * POD_ENDS_S)

    def _suspend_rounds(self, seconds: float) -> None:
        """Args: seconds: of SUSPENDED_S, all pods end"""
        self.rules.rounds.suspend(is_suspended=True)
        self.run_for(seconds)
        if seconds >= SUSPENDED_S:
            self.cluster.oracle.check_rounds()
        self.rules.rounds.suspend(is_suspended=False)

    def _grow_old(self) -> None:
        """A worker starts more often than the ledger keeps its processes, and once more when they
        have been silent for long enough to be taken for dead.
        """
        worker = self.rules.worker()
        if worker is None:
            return
        self.world.note(f"{worker[2]} at {worker[0].name} starts again and again")
        # The last wait is longer: a report may wait for the pause between two writes of a job, and
        # the plan of a fleet, which sums its slices, for as long again, and for its own pace.
        for wait_s in (*[0.1] * MAX_WORKER_PROCESSES, SPEAKS_WITHIN_S, 1.0, 30.0):
            self.rules.restart_and_report(worker)
            self.run_for(wait_s)

    def _check_crash_free(self) -> None:
        """A run without faults makes the same of the same jobs."""
        reference = reference_of(self.cluster)
        try:
            reference.is_healed = True
            calm = Run(reference)
            calm.run_for(CALM_S)
            alive = unended(self.cluster)
            found = differences(end_of(self.cluster, alive), end_of(reference, alive))
        finally:
            reference.close()
        if found:
            self.cluster.oracle.fail("I14", found[0])

    def _check_settled(self) -> None:
        cluster, oracle = self.cluster, self.cluster.oracle
        oracle.check_ledgers()
        oracle.check_children()
        oracle.check_sums()
        oracle.check_pods()
        oracle.check_rounds()
        living = [each for each in cluster.controllers.values() if each.process.is_alive]
        oracle.check_rollout(living)
        oracle.check_models(living)
        for controller in cluster.controllers.values():
            if not controller.process.is_alive:
                continue
            oracle.check_converged(controller)
            oracle.check_contact(controller.node, is_connected=True)
            assert controller.ledger is not None
            reading = controller.process.start(controller.ledger.workers())
            self.run_for(1.0)
            rows = reading.result()
            if f"{controller.node}-twin" not in cluster.twins:
                oracle.check_reported(controller, rows)
            oracle.check_totals(
                controller,
                [(row.uid, row.name, row.worker.totals.get("seen", 0)) for row in rows],
            )
        for node in set(NODES) - cluster.nodes:
            oracle.check_contact(node, is_connected=False)


class Outcome:
    def __init__(self, seed: int, run: Run, problem: str) -> None:
        self.seed, self.problem = seed, problem
        self.steps, self.digest = run.world.steps, run.world.digest
        self.log = list(run.world.log) if problem else []
        self.seconds = run.world.now


def weights_of(seed: int) -> Weights:
    """How often each rule is drawn. Every other run has Models whose content goes to nodes."""
    if seed >= FIRST_WITH_ROUNDS:
        return WITH_ROUNDS
    weights = WITH_FLEETS if seed >= FIRST_WITH_FLEETS else WEIGHTS
    if seed >= FIRST_WITH_ROLLOUTS:
        weights = WITH_ROLLOUTS
    return weights if seed % 2 else {**weights, **OF_MODELS}


def simulate(seed: int, steps: int) -> Outcome:
    """Run one seed. The same seed and steps give the same run."""
    draw = random.Random(seed)
    replicas, nodes = draw.choice((1, 1, 2, 3)), draw.choice((2, 3, 3))
    rule_every = draw.choice(RULE_EVERY)
    with quiet_python() as bugs:
        cluster = SimulatedCluster(VirtualTime(seed), replicas=replicas, nodes=nodes)
        cluster.api.pod_ends_s = POD_ENDS_S if seed >= FIRST_WITH_ROUNDS else 0.0
        run = Run(cluster, weights_of(seed))
        try:
            run.chaos(steps, rule_every=rule_every)
            run.settle()
            problem = "; ".join(bugs[:3])
        except BrokenInvariant as error:
            problem = str(error)
        finally:
            run.cluster.close()
        outcome = Outcome(seed, run, problem)
        del run
        gc.collect()
    return outcome


def check_seed(seed: int, steps: int = 2000) -> None:
    """Run the seed. Raises: AssertionError with the log of a run that breaks a promise"""
    outcome = simulate(seed, steps)
    if outcome.problem:
        again = f"again: make simulate SEED={seed} STEPS={steps}"
        raise AssertionError("\n".join([*outcome.log, outcome.problem, again]))


@contextmanager
def quiet_python() -> Iterator[list[str]]:
    """Collects the unexpected exceptions that the shipped code logs; hides what killed processes
    leave behind.
    """
    bugs: list[str] = []

    def collect(_logger: Any, _method: str, event: Any) -> Any:
        if event.get("exc_info") and not is_killing():
            bugs.append(f"{event['event']}: {sys.exc_info()[1]!r}")
        raise structlog.DropEvent

    before, hook = structlog.get_config(), sys.unraisablehook
    structlog.configure(
        processors=[collect],
        wrapper_class=structlog.make_filtering_bound_logger(40),
        cache_logger_on_first_use=False,
    )
    sys.unraisablehook = lambda _unraisable: None
    generators = sys.get_asyncgen_hooks()
    # Those of a killed process end without running their `finally` at a time that nobody knows.
    sys.set_asyncgen_hooks(finalizer=lambda _generator: None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield bugs
    finally:
        sys.unraisablehook = hook
        sys.set_asyncgen_hooks(*generators)
        structlog.configure(**before)
