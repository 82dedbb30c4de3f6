"""The same rules and checks, drawn by hypothesis, which makes a failing run as short as it can."""

import gc

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.simulation.cluster import SimulatedCluster
from tests.simulation.driver import Run, quiet_python
from tests.simulation.rules import WEIGHTS, Rules
from tests.simulation.world import VirtualTime

USERS = [Rules.create_job, Rules.edit_job, Rules.delete_job, Rules.recreate_job]
WORKERS = [
    Rules.report,
    Rules.report_burst,
    Rules.report_end,
    Rules.chatter,
    Rules.restart_worker,
]
FAULTS = [each for each in WEIGHTS if each not in (*USERS, *WORKERS)]


class Simulation(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32 - 1), replicas=st.integers(1, 3), jobs=st.integers(1, 4))
    def begin(self, seed: int, replicas: int, jobs: int) -> None:
        self.quiet = quiet_python()
        self.bugs = self.quiet.__enter__()
        self.run = Run(SimulatedCluster(VirtualTime(seed), replicas=replicas, nodes=3))
        for _ in range(jobs):
            self.run.rules.create_job()
        self.go_on(300)

    @rule(what=st.sampled_from(USERS), steps=st.integers(1, 60))
    def user_acts(self, what, steps) -> None:  # type: ignore[no-untyped-def]
        what(self.run.rules)
        self.go_on(steps)

    @rule(what=st.sampled_from(WORKERS), steps=st.integers(1, 30))
    def worker_reports(self, what, steps) -> None:  # type: ignore[no-untyped-def]
        what(self.run.rules)
        self.go_on(steps)

    @rule(what=st.sampled_from(FAULTS), steps=st.integers(0, 150))
    def fault_comes(self, what, steps) -> None:  # type: ignore[no-untyped-def]
        what(self.run.rules)
        self.go_on(steps)

    def go_on(self, steps: int) -> None:
        for _ in range(steps):
            self.run.step()

    def teardown(self) -> None:
        if not hasattr(self, "run"):
            return
        try:
            self.run.settle()
            assert not self.bugs
        finally:
            self.run.cluster.close()
            # What Python cleans up of one run must not run in the middle of the next one.
            del self.run
            gc.collect()
            self.quiet.__exit__(None, None, None)


TestSimulation = Simulation.TestCase
TestSimulation.settings = settings(
    max_examples=10, stateful_step_count=30, derandomize=True, database=None
)
