"""What holds for every test."""

import asyncio
import gc
import importlib
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.clock import Clock

# To look again and again at what is collected takes a fifth of the collection.
gc.disable()
# The machine may be busy.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")
pytest.register_assert_rewrite("tests.support.inference_rules")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cluster",
        choices=("local", "real"),
        default="local",
        help="what tests/conformance and tests/clients run on: the local cluster, or a real "
        "control plane",
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Each of several processes imports a part of all tests first: else, in a new checkout, each
    would compile all of them, which takes as long again as their collection.
    """
    worker, count = (os.environ.get(f"PYTEST_XDIST_WORKER{end}", "") for end in ("", "_COUNT"))
    if not worker or session.config.args != ["tests"]:
        return
    ignored = {session.config.rootpath / path for path in session.config.option.ignore}
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    tests = [file for file in files if ignored.isdisjoint(file.parents)]
    for test in tests[int(worker.removeprefix("gw")) :: int(count)]:
        parts = test.relative_to(session.config.rootpath).with_suffix("").parts
        with suppress(Exception):  # the collection says what is wrong
            importlib.import_module(".".join(parts))


def pytest_collection_finish() -> None:
    """Modules and tests stay until the end. To look at them takes 0.3 s each time."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def no_stray_event_loop() -> None:
    """looptime asks for the current loop before each plain test; the policy would make one, which
    nobody closes, and the warning of that fails whichever test runs when it is collected."""
    asyncio.set_event_loop(None)


@pytest.fixture
def clock() -> Clock:
    return Clock()
