"""What holds for every test."""

import asyncio
import gc

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
