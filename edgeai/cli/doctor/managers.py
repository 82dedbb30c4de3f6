"""Whether GlobalManagers run with their rights, one leads, and their clocks are right."""

from collections.abc import Iterator
from typing import Final

from edgeai.api.objects import label_of
from edgeai.api.resources import DEPLOYMENTS, PODS, Object
from edgeai.api.status import condition_of
from edgeai.cli.doctor.facts import MANAGER, NAME_LABEL, Facts, part_of
from edgeai.cli.doctor.finding import (
    INSTALL,
    Level,
    Note,
    age_s,
    is_silent,
    look,
    pod_problem,
    some,
)
from edgeai.kube.errors import Forbidden
from edgeai.kube.remedies import UPGRADE
from globalmanager.ha.elector import LEASE_NAME, LEASES, REPLICA_LABEL
from globalmanager.manifests.rbac import ACCOUNT

CLOCK_S: Final = 5.0
"""A Lease of the GlobalManager is this much in the future at most, in seconds: clocks that differ
by more make ages and timeouts in .status wrong."""


def managers(facts: Facts) -> Iterator[Note]:
    deployments = part_of(facts.of(DEPLOYMENTS), MANAGER)
    pods = facts.objects[PODS]
    pods = () if isinstance(pods, Forbidden) else pods  # they only say why
    if not deployments:
        message = f"no Deployment with {NAME_LABEL}={MANAGER} in namespace {facts.namespace}"
        yield "error", message, f"{INSTALL}; or name its namespace with --namespace"
        return
    for deployment in deployments:
        name = f"Deployment {facts.namespace}/{deployment['metadata']['name']}"
        desired = (deployment.get("spec") or {}).get("replicas", 1)
        available = (deployment.get("status") or {}).get("availableReplicas", 0)
        if desired == 0:
            scale = f"kubectl -n {facts.namespace} scale deployment {MANAGER} --replicas=2"
            yield "error", f"{name} is scaled to 0, so no job makes progress", scale
        elif available < desired:
            why = (
                pod_problem(part_of(pods, MANAGER)) or _refused(deployment) or "no pod says why yet"
            )
            level: Level = "warning" if available else "error"
            yield level, f"{name} has {available} of {desired} replicas: {why}", look(facts)
        else:
            yield "ok", f"{name} has {available} of {desired} replicas"


def _refused(deployment: Object) -> str:
    """Why the API server takes no pod of the Deployment, such as a quota; "" where it does."""
    failure = condition_of(deployment, "ReplicaFailure")
    return str(failure.get("message") or failure.get("reason") or "")


def leader(facts: Facts) -> Iterator[Note]:
    leases = {lease["metadata"]["name"]: lease for lease in facts.of(LEASES)}
    spec = (leases.get(LEASE_NAME) or {}).get("spec") or {}
    remedy = f"see why in the log: kubectl -n {facts.namespace} logs deployment/{MANAGER}"
    if not spec.get("holderIdentity"):
        yield "error", "no GlobalManager leads, so no job is reconciled", remedy
        return
    if is_silent(spec, facts.clock):
        silent_s = age_s(spec.get("renewTime"), facts.clock)
        holder = spec["holderIdentity"]
        yield "error", f"the leader {holder} has not renewed its Lease for {silent_s:.0f} s", remedy
    else:
        yield "ok", f"{spec['holderIdentity']} leads"


def clocks(facts: Facts) -> Iterator[Note]:
    """The clock of the API server is the measure. A Lease that was renewed in the future shows a
    clock that is ahead. One that is behind looks like a Lease that is not renewed any more.
    """
    own_s = (facts.now - facts.clock).total_seconds()
    if abs(own_s) > CLOCK_S:
        where = "ahead of" if own_s > 0 else "behind"
        message = f"this machine's clock is {abs(own_s):.0f} s {where} the API server's"
        yield "warning", message, "set both clocks by NTP; ages that are shown here are wrong"
    ahead: dict[str, float] = {}
    for lease in facts.of(LEASES):
        spec = lease.get("spec") or {}
        ahead_s = -age_s(spec.get("renewTime"), facts.clock)
        if label_of(lease, REPLICA_LABEL) and ahead_s > CLOCK_S:
            ahead[str(spec.get("holderIdentity"))] = ahead_s  # the leader has two Leases
    for holder, ahead_s in ahead.items():
        message = f"the clock of {holder} is {ahead_s:.0f} s ahead of the API server's"
        yield "warning", message, "set both clocks by NTP; ages are wrong till then"
    if abs(own_s) <= CLOCK_S and not ahead:
        yield "ok", "no clock is ahead of the API server's"


def rights(facts: Facts) -> Iterator[Note]:
    if isinstance(facts.denied, Forbidden):
        raise facts.denied
    if not facts.denied:
        yield "ok", f"ServiceAccount {facts.namespace}/{ACCOUNT} has all its rights"
        return
    message = f"ServiceAccount {facts.namespace}/{ACCOUNT} may not {some(facts.denied)}"
    yield "error", message, UPGRADE
