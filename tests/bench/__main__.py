"""`make bench`: measure, and print one JSON object.

    python -m tests.bench [local] [cluster] [console] [federated] [worker-http] [manager-memory]
        [edge-memory] [edge-node] [elastic] [large-fleet] [relay] [delivery] [traces]
        [hostile] [churn] [training] [scale]

Without a name, all but `churn`, `training` and `scale`, which take 18, about 10 and about 12
minutes.

Machines are shared and noisy, so figures come with their spread. docs/performance.md has the newest
figures.
"""

import json
import sys
from typing import Any

from tests.bench import (
    churn,
    cluster,
    console,
    delivery,
    edge_memory,
    edge_node,
    elastic,
    federated,
    hostile,
    large_fleet,
    local,
    manager_memory,
    relay,
    scale,
    traces,
    training,
    worker_http,
)
from tests.cluster.binaries import Unavailable

USUAL = (
    *(local, cluster, console, federated, worker_http, manager_memory, edge_memory, edge_node),
    *(elastic, large_fleet, relay, delivery, traces, hostile),
)
SECTIONS = {
    module.__name__.rpartition(".")[2].replace("_", "-"): module
    for module in (*USUAL, churn, training, scale)
}


def figures_of(section: str) -> Any:
    try:
        return SECTIONS[section].measure()
    except Unavailable as error:
        return {"unavailable": str(error)}


def main() -> None:
    wanted = sys.argv[1:] or list(SECTIONS)[: len(USUAL)]
    unknown = set(wanted) - set(SECTIONS)
    if unknown:
        sys.exit(f"unknown section {sorted(unknown)[0]!r}; there are {', '.join(SECTIONS)}")
    print(json.dumps({name: figures_of(name) for name in wanted}))


if __name__ == "__main__":
    main()
