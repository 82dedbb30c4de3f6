"""Builders for the tests of the LocalController: assignments, frames, worker messages."""

import hashlib
from typing import Any, NoReturn

from common import wire
from common.relay.carrier import StreamRefused
from common.relay.frames import Refusal
from common.session import Timing
from edgeai.ids import TaskKey, Uid, WorkerName
from globalmanager.edge.sessions.cloud_session import Desired
from localcontroller.ledger.attempts import ProcessMessage

SECRET = "5" * 64
UID = Uid("uid-1")
WORKER = WorkerName("digits-edge")
TIMING = Timing(opening_s=5.0, beat_s=5.0, silence_s=10.0)


def key(name: str = "digits") -> TaskKey:
    return TaskKey(f"jointinferenceservices.edgeai.io/default/{name}")


def secret_hash(secret: str = SECRET) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def body(*workers: str, secret: str = SECRET, spec: dict[str, Any] | None = None) -> bytes:
    grants = {WorkerName(w): wire.WorkerGrant(secret_hash(secret)) for w in workers or (WORKER,)}
    return wire.pack(wire.AssignmentBody("default", "digits", spec or {}, grants))


def assign(
    name: str = "digits",
    *,
    uid: str = UID,
    version: int = 1,
    seq: int = 1,
    body_: bytes | None = None,
) -> wire.Assign:
    return wire.Assign(seq, key(name), Uid(uid), version, body() if body_ is None else body_)


def withdraw(name: str = "digits", *, uid: str = UID) -> wire.Withdraw:
    return wire.Withdraw(1, key(name), Uid(uid))


def synced(*names: str) -> wire.Synced:
    return wire.Synced(1, [key(name) for name in names])


def desired(*, uid: str = UID, version: int = 1, body_: bytes | None = None) -> Desired:
    return Desired(Uid(uid), version, body() if body_ is None else body_)


def worker_message(seen: int = 0, **fields: Any) -> ProcessMessage:
    return ProcessMessage(**{"instance": "p1", "counts": {"seen": seen}, **fields})


def report_of(data: bytes) -> wire.ReportBody:
    report: wire.ReportBody = wire.unpack(data, wire.ReportBody)
    return report


class NoRelay:
    """Of a node without a session."""

    async def carrier(self) -> NoReturn:
        raise StreamRefused(Refusal.UNREACHABLE, "no session with the GlobalManager now")
