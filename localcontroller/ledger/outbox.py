"""The reports of the ledger that wait for the cloud, and the result of sending one.

A report waits while its row has a revision above the acknowledged one. The ledger gives these
reports as Outgoing. link sends them, and gives each result back to the ledger as ReportAcked, also
a refusal. This module only defines types; it does no I/O.
"""

from typing import NamedTuple

import msgspec

from edgeai.ids import Uid, WorkerName


class WorkerKey(NamedTuple):
    """Identifies a worker of a task. A newer report replaces a waiting one with the same key."""

    uid: Uid
    worker: WorkerName


class Outgoing(msgspec.Struct, frozen=True):
    """A worker's latest state, as a report to send. `revision` is the ledger's number for it."""

    uid: Uid
    worker: WorkerName
    attempt: int
    revision: int
    body: bytes


class ReportAcked(msgspec.Struct, frozen=True):
    """`report` has taken effect in the cloud; or the cloud refuses it, and `refusal` says why."""

    report: Outgoing
    refusal: str
