"""The work queue against the simplest thing that could be right, under any sequence of calls."""

import asyncio

import looptime
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from edgeai.api.resources import ObjectRef
from edgeai.backoff import Backoff
from globalmanager.engine.queue import WorkQueue
from tests.globalmanager.engine.test_queue import A, B, C

KEYS = st.sampled_from([A, B, C])


class QueueAgainstModel(RuleBasedStateMachine):
    """The model: what is dirty, in order; what is in work; when delays end; how often failed."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = looptime.new_event_loop()
        self.queue: WorkQueue = WorkQueue(
            new_backoff=lambda: Backoff(base_s=1.0, max_s=8.0, uniform=lambda _low, high: high)
        )
        self.now = 0
        self.ready: list[set[ObjectRef]] = []  # groups; within one, any order is right
        self.again: set[ObjectRef] = set()
        self.active: set[ObjectRef] = set()
        self.due: dict[ObjectRef, int] = {}
        self.failed: dict[ObjectRef, int] = {}

    def in_loop(self, function: object, *args: object) -> object:
        async def call() -> object:
            return function(*args)  # type: ignore[operator]

        return self.loop.run_until_complete(call())

    def model_add(self, key: ObjectRef) -> None:
        if key in self.active:
            self.again.add(key)
        elif not any(key in group for group in self.ready):
            self.ready.append({key})

    def model_add_after(self, key: ObjectRef, delay_s: int) -> None:
        if delay_s <= 0:
            self.model_add(key)
        else:
            self.due[key] = min(self.now + delay_s, self.due.get(key, self.now + delay_s))

    @rule(key=KEYS)
    def add(self, key: ObjectRef) -> None:
        self.in_loop(self.queue.add, key)
        self.model_add(key)

    @rule(key=KEYS, delay_s=st.integers(0, 6))
    def add_after(self, key: ObjectRef, delay_s: int) -> None:
        self.in_loop(self.queue.add_after, key, float(delay_s))
        self.model_add_after(key, delay_s)

    @rule(key=KEYS)
    def retry(self, key: ObjectRef) -> None:
        expected = min(8, 2 ** self.failed.get(key, 0))
        assert self.in_loop(self.queue.retry, key) == expected
        self.failed[key] = self.failed.get(key, 0) + 1
        self.model_add_after(key, expected)

    @rule(key=KEYS)
    def forget(self, key: ObjectRef) -> None:
        self.queue.forget(key)
        self.failed.pop(key, None)

    @precondition(lambda self: self.ready)
    @rule()
    def get(self) -> None:
        key = self.loop.run_until_complete(self.queue.get())
        assert key in self.ready[0]
        self.ready[0].remove(key)
        self.ready = [group for group in self.ready if group]
        self.active.add(key)

    @precondition(lambda self: self.active)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.active, key=str)))
        self.in_loop(self.queue.done, key)
        self.active.remove(key)
        if key in self.again:
            self.again.remove(key)
            self.ready.append({key})

    @rule(seconds=st.integers(1, 10))
    def advance(self, seconds: int) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))
        for _ in range(seconds):
            self.now += 1
            self.model_come_due({key for key in self.due if self.due[key] == self.now})

    def model_come_due(self, keys: set[ObjectRef]) -> None:
        before = len(self.ready)
        for key in sorted(keys, key=str):
            del self.due[key]
            self.model_add(key)
        at_once = set().union(*self.ready[before:])
        self.ready = self.ready[:before] + ([at_once] if at_once else [])

    @invariant()
    def as_many_are_ready_as_in_the_model(self) -> None:
        assert len(self.queue) == sum(len(group) for group in self.ready)
        failures = {key: backoff.failures for key, backoff in self.queue._backoffs.items()}
        assert failures == self.failed

    def teardown(self) -> None:
        self.queue.close()
        self.loop.close()


QueueAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestQueueAgainstModel = QueueAgainstModel.TestCase
