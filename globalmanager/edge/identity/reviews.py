"""Looks again, now and then, at the credentials that live sessions were admitted with.

Run by the server. A credential that is no longer good (token revoked or expired, pod gone,
certificate expired or its CA removed) ends its session; that nobody can tell ends none.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from common.errors import Unavailable
from common.ids import NodeName
from common.logs import get_logger
from common.tasks import TaskGroup
from globalmanager.edge.identity.handshake import Authenticator, Handshake, Unauthenticated
from globalmanager.edge.metrics import EdgeMetrics

log = get_logger(__name__)

AT_ONCE: Final = 16


class Admitted(msgspec.Struct, frozen=True, eq=False):
    """One live session, as far as a review goes."""

    node: NodeName
    handshake: Handshake
    """What it was admitted with."""
    revoke: Callable[[], None]
    """End it: the credential is no longer good."""


class Reviews:
    """Args: interval_s: so often each is looked at, as far as the authenticator keeps up"""

    def __init__(
        self, authenticator: Authenticator, *, interval_s: float, metrics: EdgeMetrics
    ) -> None:
        self._authenticator = authenticator
        self._reviews = metrics.reviews
        self._interval_s = interval_s
        # When each is due; all have one interval, so the first is always due first.
        self._due: OrderedDict[Admitted, float] = OrderedDict()
        self._blind = False

    def __len__(self) -> int:
        return len(self._due)

    def add(self, session: Admitted) -> None:
        self._due[session] = self._now() + self._interval_s

    def discard(self, session: Admitted) -> None:
        self._due.pop(session, None)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._pause_s())
            async with TaskGroup() as tasks:
                for session in self._take_due():
                    tasks.create_task(self._review(session), name=f"review {session.node}")

    def _pause_s(self) -> float:
        first = next(iter(self._due.values()), self._now() + self._interval_s)
        return max(0.0, first - self._now())

    def _take_due(self) -> list[Admitted]:
        now = self._now()
        due: list[Admitted] = []
        for session, at in self._due.items():
            if at > now or len(due) == AT_ONCE:
                break
            due.append(session)
        return due

    async def _review(self, session: Admitted) -> None:
        try:
            await self._judge(session)
        except Exception:  # a fault in one review must not end those of others
            log.exception("review of a session failed", node=session.node)
        if session in self._due:
            self.add(session)
            self._due.move_to_end(session)

    async def _judge(self, session: Admitted) -> None:
        try:
            node = await self._authenticator.review(session.handshake)
        except Unavailable as error:
            self._note_blind(str(error))
            return
        except Unauthenticated as error:
            self._revoke(session, error.reason)
            return
        if node != session.node:
            self._revoke(session, "its credential is another node's now")
            return
        self._blind = False
        self._reviews.labels("good").inc()

    def _revoke(self, session: Admitted, reason: str) -> None:
        if session in self._due:  # else it has ended by itself meanwhile
            log.warning("credential of a session is no longer good", node=session.node, why=reason)
            self._reviews.labels("revoked").inc()
            self.discard(session)
            session.revoke()

    def _note_blind(self, problem: str) -> None:
        """Say once that credentials cannot be looked at, not for each session."""
        self._reviews.labels("unavailable").inc()
        if not self._blind:
            log.warning("credentials of live sessions cannot be reviewed now", problem=problem)
        self._blind = True

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()
