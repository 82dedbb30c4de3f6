"""A model of 10,000 to a million edges; writes the tables of docs/scale.md, which a test compares.

    python docs/scale.py

The constants are measured (docs/performance.md) unless they say otherwise. The model adds up what
a fleet asks of each resource, and simulates how the fleet comes back after an outage.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).with_suffix(".md")

# ---- what one thing costs ----

SESSION_KIB = 55.0
"""Resident memory of a session with a client certificate; a plain one has 19.0 KiB."""
SESSION_IDLE_CORE = 0.047 / 10_000
"""Processor of an idle session, which has a beat each way in 15 s."""
SESSION_OPEN_MS = 1.3
"""Processor of a GlobalManager for a session that comes back, without TLS."""
TLS_MS = 2.0
"""Processor of a GlobalManager for a TLS handshake with a client certificate."""
JOB_KIB = 18.2
"""Resident memory of a job, two Deployments, a Service and a Secret in the caches of a leader."""
JOB_LISTED_KIB = 8.0
"""JSON of a job with its children in lists of the API server. Estimated."""
JOB_STORED_KIB = 16.0
"""Bytes in etcd of a job with its children and what Kubernetes makes of these. Estimated."""
REPORT_MS = 1.0
"""Processor of the GlobalManager that writes a report into the status of a job. Estimated."""
WATCHED_MS = 0.46
"""Processor of each replica for a status that another process has written."""
PLANNED_MS = 0.44
"""What the leader needs beyond that: a plan which finds that nothing is to be done."""
API_WRITE_MS = 1.2
"""Processor of the API server for a write. The bare client of section `training` needs so much."""
API_SEND_MS = 0.05
"""Processor of the API server to send a change to one watch. Estimated."""
API_LIST_MIB_S = 100.0
"""JSON that one core of the API server writes into lists. Estimated."""
CLAIM_BYTES = 20.7
"""A claim of a session in the ConfigMap of its replica."""
CLAIM_US = 0.86
"""Processor to read one claim of another replica's ConfigMap."""

# ---- what there is ----

EDGES_OF_A_REPLICA = 10_000
REPLICA_MIB = 8 * 1024.0
REPLICA_CORES = 1.0  # one event loop
API_CORES = 32.0
API_MIB_S = 1000.0  # network of the API server
ETCD_WRITES_S = 10_000.0
"""A third of the 30,000 small requests a second that etcd's operations guide names."""
ETCD_MIB = 8 * 1024.0  # the largest size that etcd's documentation suggests
CLAIMS_BYTES = 1_000_000.0  # of one ConfigMap


@dataclass(frozen=True)
class Design:
    """What the GlobalManagers do; each field is one decision."""

    name: str
    written_every_s: float = 1.0
    """Shortest time between two status writes of a job whose counts change."""
    writes_s: float = math.inf
    """Status writes a second of a shard; beyond that the time between two writes grows."""
    shards: int = 1
    """Groups of replicas of which each watches its own namespaces only."""
    clusters: int = 1
    """Kubernetes clusters that share the fleet."""


@dataclass(frozen=True)
class Fleet:
    """One job for each edge, whose counts change every `report_s`. Each edge loses its connection
    once a day.
    """

    edges: float
    replicas: int
    report_s: float = 10.0


@dataclass(frozen=True)
class Demand:
    resource: str
    needed: float
    available: float
    unit: str

    @property
    def load(self) -> float:
        return self.needed / self.available


def written_every_s(fleet: Fleet, design: Design) -> float:
    """Seconds between two status writes of one job."""
    per_cluster = fleet.edges / design.clusters
    return max(
        fleet.report_s, design.written_every_s, per_cluster / design.shards / design.writes_s
    )


def demands(fleet: Fleet, design: Design) -> list[Demand]:
    """What one cluster of the fleet asks of each resource while all edges are connected."""
    edges = fleet.edges / design.clusters
    replicas = max(1.0, fleet.replicas / design.clusters)
    seen = edges / design.shards  # jobs that one replica watches
    peers = max(1.0, replicas / design.shards)  # replicas that watch the same jobs
    share = edges / replicas
    writes_s = edges / written_every_s(fleet, design)
    # A replica publishes its claims once a second at most.
    publications_s = peers * min(1.0, 2 * share / 86_400)
    claims_s = publications_s * share  # claims a second that each replica reads
    return [
        Demand(
            "memory of a replica",
            share * SESSION_KIB / 1024 + seen * JOB_KIB / 1024,
            REPLICA_MIB,
            "MiB",
        ),
        Demand(
            "processor of a leader",
            share * SESSION_IDLE_CORE
            + writes_s / replicas * REPORT_MS / 1000
            + writes_s / design.shards * (WATCHED_MS + PLANNED_MS) / 1000
            + claims_s * CLAIM_US / 1e6,
            REPLICA_CORES,
            "cores",
        ),
        Demand(
            "processor of the API servers",
            writes_s * (API_WRITE_MS + peers * API_SEND_MS) / 1000,
            API_CORES,
            "cores",
        ),
        Demand("writes of etcd", writes_s, ETCD_WRITES_S, "a second"),
        Demand("size of etcd", edges * JOB_STORED_KIB / 1024, ETCD_MIB, "MiB"),
        Demand(
            "network of the API servers",
            peers * (writes_s * JOB_LISTED_KIB / 4 / 1024 + claims_s * CLAIM_BYTES / 2**20),
            API_MIB_S,
            "MiB/s",
        ),
        Demand("claims of one replica", share * CLAIM_BYTES, CLAIMS_BYTES, "bytes"),
    ]


def largest(resource: str, design: Design) -> float:
    """The number of edges at which `resource` is used up; infinite where it never is. There is one
    replica for 10,000 edges, and at least one for each shard.
    """
    low, high = 1.0, 1e9

    def load(edges: float) -> float:
        replicas = max(design.shards * design.clusters, math.ceil(edges / EDGES_OF_A_REPLICA))
        (found,) = (
            demand.load
            for demand in demands(Fleet(edges, replicas), design)
            if demand.resource == resource
        )
        return found

    if load(high) < 1:
        return math.inf
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if load(middle) < 1 else (low, middle)
    return low


# ---- how a fleet comes back ----

SLOT_S = 0.1
BACKOFF_BASE_S = 1.0
BACKOFF_MAX_S = 60.0
PATIENCE_S = 10.0  # an edge waits so long for the answer to its handshake


@dataclass(frozen=True)
class Return:
    ready_s: float
    """Until the replicas have listed everything."""
    half_s: float
    """Until half of the edges are back, from the restart of the replicas."""
    all_s: float
    refused: int
    """Dials that found no room, or no replica that was ready."""


def come_back(
    fleet: Fleet, design: Design, *, cores: float = REPLICA_CORES, tls_ms: float = TLS_MS
) -> Return:
    """Simulate the return after all replicas ended at the same moment and started at once.

    Time goes in slots. Each edge dials after a random time below a bound that doubles with each
    failure (full jitter), as in localcontroller.link. The edges of a slot that have failed equally
    often are one number. A replica opens sessions as fast as it can, and an edge waits for its
    turn for a limited time.

    Args: cores: what one replica has of a processor
    """
    edges = fleet.edges / design.clusters
    replicas = max(1.0, fleet.replicas / design.clusters)
    listed_mib = edges / design.shards * JOB_LISTED_KIB / 1024
    ready_s = 2.0 + replicas * listed_mib / (API_LIST_MIB_S * API_CORES)
    rate = replicas * cores * 1000 / (SESSION_OPEN_MS + tls_ms)  # sessions a second
    # Edges that dial in a slot, by failures: `now` is the number, `changes` how it will change.
    most = math.ceil(math.log2(BACKOFF_MAX_S / BACKOFF_BASE_S))
    now = [0.0] * (most + 1)
    changes: list[dict[int, float]] = [{} for _ in now]

    def wait(slot: int, failures: int, count: float) -> None:
        bound_s = min(BACKOFF_MAX_S, BACKOFF_BASE_S * 2.0**failures)
        slots = max(1, round(bound_s / SLOT_S))
        for at, change in ((slot + 1, count / slots), (slot + 1 + slots, -count / slots)):
            changes[failures][at] = changes[failures].get(at, 0.0) + change

    wait(0, 0, edges)
    queue = back = refused = half_s = 0.0
    slot = 0
    while back < 0.9999 * edges:
        slot += 1
        now_s = slot * SLOT_S
        room = max(0.0, rate * PATIENCE_S - queue) if now_s >= ready_s else 0.0
        for failures, change in enumerate(changes):
            now[failures] = max(0.0, now[failures] + change.pop(slot, 0.0))
        total = sum(now)
        admitted = min(total, room)
        queue += admitted
        refused += total - admitted
        for failures, count in enumerate(now):
            if admitted < total:
                wait(slot, min(failures + 1, most), count * (1 - admitted / total))
        served = min(queue, rate * SLOT_S)
        queue -= served
        back += served
        if not half_s and back >= edges / 2:
            half_s = now_s
    return Return(ready_s, half_s, slot * SLOT_S, round(refused))


# ---- the page ----

FLEETS = (Fleet(10_000, 2), Fleet(100_000, 10), Fleet(1_000_000, 100))
TODAY = Design("today")
STEPS = (
    TODAY,
    Design("500 status writes a second of a shard", writes_s=500),
    Design("and 10 shards", writes_s=500, shards=10),
    Design("and 10 clusters", writes_s=500, shards=10, clusters=10),
)


def loads() -> Iterator[str]:
    """Today's design: what part of each resource three fleets use."""
    yield (
        "| resource | there is | "
        + " | ".join(f"{_number(cell.edges)} edges, {cell.replicas} replicas" for cell in FLEETS)
        + " |"
    )
    yield "|---|---" + "|---" * len(FLEETS) + "|"
    for row in zip(*(demands(fleet, TODAY) for fleet in FLEETS), strict=True):
        cells = (f"{_bold(cell)}" for cell in row)
        yield (
            f"| {row[0].resource} | {_number(row[0].available)} {row[0].unit} | "
            + " | ".join(cells)
            + " |"
        )


def limits() -> Iterator[str]:
    """The number of edges at which each resource gives out."""
    yield "| resource | " + " | ".join(design.name for design in STEPS) + " |"
    yield "|---" * (1 + len(STEPS)) + "|"
    for resource in (demand.resource for demand in demands(FLEETS[0], TODAY)):
        cells = (_number(largest(resource, design)) for design in STEPS)
        yield f"| {resource} | " + " | ".join(cells) + " |"
    ages = (f"{written_every_s(FLEETS[-1], design):,.0f} s" for design in STEPS)
    yield "| *age of a count in the status, a million edges* | " + " | ".join(ages) + " |"


def returns() -> Iterator[str]:
    """How fleets come back after all replicas ended at once."""
    yield "| fleet | design | replicas ready | half of the edges | all edges | failed dials |"
    yield "|---|---|---|---|---|---|"
    for fleet in FLEETS:
        for design in STEPS[:1] if fleet.edges < 1e6 else (STEPS[0], *STEPS[2:]):
            outage = come_back(fleet, design)
            yield (
                f"| {_number(fleet.edges)} edges, {fleet.replicas} replicas | {design.name} | "
                f"{outage.ready_s:.0f} s | {outage.half_s:.0f} s | {outage.all_s:.0f} s | "
                f"{_number(outage.refused)} |"
            )


def _number(value: float) -> str:
    """Three digits are enough for a model."""
    if math.isinf(value):
        return "none"
    return f"{float(f'{value:.3g}'):,.0f}"


def _bold(demand: Demand) -> str:
    text = f"{100 * demand.load:.0f} %"
    return f"**{text}**" if demand.load >= 1 else text


def page() -> str:
    """The page with its tables generated again."""
    text = PAGE.read_text(encoding="utf-8")
    for table in (loads, limits, returns):
        begin, end = f"<!-- {table.__name__} -->\n", f"<!-- end of {table.__name__} -->\n"
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        block = begin + "\n" + "\n".join(table()) + "\n\n" + end
        assert pattern.search(text), f"{PAGE.name} has no place for the table {table.__name__}"
        text = pattern.sub(lambda _, block=block: block, text)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
