"""Reviews the credentials of live sessions at regular intervals.

A session ends when its credential is no longer good (token revoked or expired, pod gone,
certificate expired, CA removed). A review without an answer of the Kubernetes API ends no session.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from common.clock import loop_time
from common.logs import get_logger
from common.tasks import TaskGroup
from edgeai.errors import Unavailable
from edgeai.ids import NodeName
from globalmanager.edge.identity.handshake import Authenticator, Handshake, Unauthenticated
from globalmanager.edge.metrics import EdgeMetrics

log = get_logger(__name__)

MAX_PARALLEL_REVIEWS: Final = 16
TOGETHER: Final = 1 / 200  # part of the interval in which reviews are put together


class Admitted(msgspec.Struct, frozen=True, eq=False):
    """A live session with the handshake that admitted it."""

    node: NodeName
    handshake: Handshake
    revoke: Callable[[], None]
    """Ends the session because its credential is no longer good."""


class Reviews:
    """Args: interval_s: between two reviews of a session; longer when `authenticator` is slow"""

    def __init__(
        self, authenticator: Authenticator, *, interval_s: float, metrics: EdgeMetrics
    ) -> None:
        self._authenticator = authenticator
        self._reviews = metrics.reviews
        self._interval_s = interval_s
        # session -> time of its next review, in order of time, as all have the same interval
        self._due: OrderedDict[Admitted, float] = OrderedDict()
        self._unavailable = False  # the last review had no answer, and the log says so

    def __len__(self) -> int:
        return len(self._due)

    def first_expiry(self) -> float:
        """When the first client certificate of a session ends, Unix seconds; infinite: never."""
        peers = (session.handshake.certificate for session in self._due)
        return min((peer.expires_at for peer in peers if peer), default=math.inf)

    def add(self, session: Admitted) -> None:
        self._due[session] = loop_time() + self._interval_s

    def discard(self, session: Admitted) -> None:
        self._due.pop(session, None)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s())
            async with TaskGroup() as tasks:
                for session in self._take_due():
                    tasks.create_task(self._review(session), name=f"review {session.node}")

    def _pause_s(self) -> float:
        """Seconds until the next session is due, or more: so one wake-up reviews several."""
        wait_s = next(iter(self._due.values()), loop_time() + self._interval_s) - loop_time()
        return 0.0 if wait_s <= 0 else max(wait_s, self._interval_s * TOGETHER)

    def _take_due(self) -> list[Admitted]:
        now = loop_time()
        due: list[Admitted] = []
        for session, at in self._due.items():
            if at > now or len(due) == MAX_PARALLEL_REVIEWS:
                break
            due.append(session)
        return due

    async def _review(self, session: Admitted) -> None:
        try:
            await self._check(session)
        except Exception:  # a bug in one review must not end the reviews of other sessions
            log.exception("review of a session failed", node=session.node)
        if session in self._due:
            self.add(session)
            self._due.move_to_end(session)

    async def _check(self, session: Admitted) -> None:
        try:
            node = await self._authenticator.review(session.handshake)
        except Unavailable as error:
            self._note_unavailable(str(error))
            return
        except Unauthenticated as error:
            self._revoke(session, error.reason)
            return
        if node != session.node:
            self._revoke(session, "its credential is another node's now")
            return
        self._unavailable = False
        self._reviews.labels("good").inc()

    def _revoke(self, session: Admitted, reason: str) -> None:
        if session in self._due:  # otherwise the session ended during the review
            log.warning("credential of a session is no longer good", node=session.node, why=reason)
            self._reviews.labels("revoked").inc()
            self.discard(session)
            session.revoke()

    def _note_unavailable(self, problem: str) -> None:
        """Count a review without an answer. The log has one line for an outage of all sessions."""
        self._reviews.labels("unavailable").inc()
        if not self._unavailable:
            log.warning("credentials of live sessions cannot be reviewed now", problem=problem)
        self._unavailable = True
