"""Whatever a worker sends to the worker API with its own secret, all else in the ledger stays as it
is, byte for byte, and its own rows stay within their budget. Real socket, real ledger.
"""

import asyncio
import json
from typing import Any, Final

import aiohttp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from edgeai.ids import WorkerName
from localcontroller.ledger.ledger import Ledger
from localcontroller.workers.messages import MAX_REPORT_BYTES
from localcontroller.workers.rates import RequestRates
from tests.localcontroller.builders import SECRET, WORKER
from tests.localcontroller.workers.test_api import FOREIGN, FOREIGN_SECRET, running_node

OWN: Final = {WORKER, WorkerName("digits-cloud")}  # the workers that the secret may report for
OWN_BYTES: Final = 2 * MAX_REPORT_BYTES

TEXTS: Final = st.sampled_from(["", "running", "completed", "failed", "lost", "<" * 300, "\0"])
SCALARS: Final = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats() | TEXTS
NAMES: Final = st.sampled_from(["seen", "hard", "uploaded", "x", "metrics.a", "é" * 70])
INFO: Final = st.dictionaries(NAMES, SCALARS | st.integers(0, 9), max_size=4)
EDGEAI: Final = st.fixed_dictionaries(
    {"status": TEXTS | st.just("running")},
    optional={
        "phase": SCALARS,
        "instance": TEXTS,
        "sequence": SCALARS,
        "heartbeatSeconds": SCALARS,
        "output": st.fixed_dictionaries({"taskInfo": INFO}, optional={"counts": st.lists(NAMES)}),
    },
)
SEDNA: Final = st.fixed_dictionaries(
    {"name": st.sampled_from([*sorted(OWN), str(FOREIGN)])},
    optional={
        "namespace": TEXTS,
        "ownerName": st.sampled_from([FOREIGN, "faces"]),
        "status": TEXTS,
        "ownerInfo": INFO | st.just({"inferenceNumber": 3, "hardExampleNumber": 1}),
        "results": st.lists(SCALARS, max_size=2),
    },
)
JSON: Final = (EDGEAI | SEDNA).map(lambda body: json.dumps(body).encode())
GOOD: Final = st.builds(
    lambda seen, name: json.dumps(
        {"name": name, "status": "running", "output": {"taskInfo": {"seen": seen}}}
    ).encode(),
    st.integers(0, 99),
    st.sampled_from([*sorted(OWN), str(FOREIGN)]),
)
BODIES: Final = GOOD | JSON | st.binary(max_size=30)
WORKERS: Final = st.sampled_from([*sorted(OWN), str(FOREIGN), "none", "..", "%2e%2e%2f", "a%00b"])
PATHS: Final = st.builds(
    lambda form, worker: form.format(worker),
    st.sampled_from(["v1/workers/{}/status", "sedna/workers/{}/info", "v1/workers/{}", "{}"]),
    WORKERS,
)
METHODS: Final = st.sampled_from(["POST", "POST", "POST", "PUT", "GET", "DELETE"])
FAST: Final = RequestRates(of_task_per_s=1e6, of_namespace_per_s=1e6, of_stranger_per_s=1e6)
REQUESTS: Final = st.lists(st.tuples(METHODS, PATHS, BODIES), min_size=1, max_size=8)


async def test_whatever_a_worker_sends_the_others_are_byte_identical(ledger: Ledger) -> None:
    loop = asyncio.get_running_loop()
    accepted = 0
    async with running_node(ledger, rates=FAST) as node, aiohttp.ClientSession() as session:
        foreign = {"status": "running", "output": {"taskInfo": {"seen": 7}}}
        status, _ = await node.status(foreign, worker=FOREIGN, secret=FOREIGN_SECRET)
        assert status == 200
        before = await everything_else(ledger)
        other = {"name": FOREIGN, "status": "running", "output": {"taskInfo": {"seen": 9}}}
        message = json.dumps(other).encode()

        async def check(requests: list[tuple[str, str, bytes]]) -> None:
            nonlocal accepted
            for method, path, body in requests:
                url = f"http://127.0.0.1:{node.port}/w/{SECRET}/{path}"
                async with session.request(method, url, data=body) as response:
                    assert response.status < 500, await response.text()
                    accepted += response.status == 200
            assert await everything_else(ledger) == before
            assert await own_bytes(ledger) <= OWN_BYTES

        @settings(max_examples=80, suppress_health_check=list(HealthCheck))
        @given(REQUESTS)
        @example([("POST", f"v1/workers/{WORKER}/status", message)])
        @example([("POST", f"v1/workers/{FOREIGN}/status", message)])
        @example([("POST", f"sedna/workers/{FOREIGN}/info", message)])
        def attacks(requests: list[tuple[str, str, bytes]]) -> None:
            asyncio.run_coroutine_threadsafe(check(requests), loop).result()

        await asyncio.to_thread(attacks)
    assert accepted, "no message was accepted, so the test shows nothing"


async def everything_else(ledger: Ledger) -> list[str]:
    """The tasks, and the workers of others."""
    rows: list[Any] = await ledger.tasks("jointinferenceservices")
    rows += [row for row in await ledger.workers() if row.name not in OWN]
    return [repr(row) for row in rows]


async def own_bytes(ledger: Ledger) -> int:
    return sum(len(repr(row)) for row in await ledger.workers() if row.name in OWN)
