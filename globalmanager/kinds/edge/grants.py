"""The right of an edge worker to report: the Secret of its pod, and the grant of its node."""

from common.wire import WorkerGrant
from globalmanager.contract import Create, Observed
from globalmanager.kinds.shared import children
from globalmanager.kinds.shared.pods import WORKER_SECRET
from globalmanager.kinds.shared.secrets import secret_hash, worker_secret


def secret(observed: Observed, name: str, role: str) -> Create:
    """Of all pods of this role."""
    value = worker_secret(observed.settings.root_key, observed.uid, role)
    return children.secret(observed, name=name, role=role, values={WORKER_SECRET: value})


def grant(observed: Observed, role: str) -> WorkerGrant:
    # The node gets the hash, so its ledger holds no secret that another process could use.
    return WorkerGrant(secret_hash(worker_secret(observed.settings.root_key, observed.uid, role)))
