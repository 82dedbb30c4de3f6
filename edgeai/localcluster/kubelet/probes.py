"""Readiness and liveness probes of one running container.

The spec sets the periods and thresholds. Their defaults are the same as in Kubernetes. A gRPC or
HTTPS probe always fails, with a message that it is not supported.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import aiohttp
import msgspec

from edgeai.localcluster.objects.resources import Object

Exec = Callable[[Sequence[str]], Awaitable[int]]
"""Runs a command in the environment of the container. Returns the exit code."""


class ProbeTarget(msgspec.Struct, frozen=True, kw_only=True):
    pod_ip: str
    ports: dict[str, int]
    """Port name -> port number."""
    moved_ports: Mapping[int, int] = {}
    """Port number -> port of this machine where the container listens instead."""
    exec: Exec


class ProbeFailed(Exception):
    """One attempt of a probe failed. The text of the error says why."""


class Probe(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A probe of a container's spec. The fields of the check have the form of the API."""

    initial_delay_seconds: float = 0
    period_seconds: float = 10
    timeout_seconds: float = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    http_get: dict[str, Any] | None = None
    tcp_socket: dict[str, Any] | None = None
    exec: dict[str, Any] | None = None


def parse_probe(container: Object, kind: str) -> Probe | None:
    """Args: kind: readinessProbe or livenessProbe"""
    spec = container.get(kind)
    return msgspec.convert(spec, Probe, strict=False) if spec else None


async def failure(probe: Probe, target: ProbeTarget) -> str:
    """Probe the container once. Returns: why it failed; "" if it did not"""
    try:
        async with asyncio.timeout(probe.timeout_seconds):
            await _check(probe, target)
    except TimeoutError:
        return f"no answer within {probe.timeout_seconds:g} s"
    except (ProbeFailed, aiohttp.ClientError, OSError, ValueError, KeyError) as error:
        return str(error)  # also of a malformed check
    return ""


async def _check(probe: Probe, target: ProbeTarget) -> None:
    if probe.http_get:
        await _http_get(probe.http_get, target)
    elif probe.tcp_socket:
        _, writer = await asyncio.open_connection(*_address(probe.tcp_socket, target))
        writer.close()
    elif probe.exec:
        code = await target.exec([str(part) for part in probe.exec.get("command") or []])
        if code != 0:
            raise ProbeFailed(f"command ended with exit code {code}")
    else:
        raise ProbeFailed("the local cluster knows httpGet, tcpSocket and exec probes only")


def _address(check: Object, target: ProbeTarget) -> tuple[str, int]:
    port = check.get("port")
    number = target.ports.get(port) if isinstance(port, str) else port
    if not isinstance(number, int):
        raise ProbeFailed(f"the container has no port {port!r}")
    return str(check.get("host") or target.pod_ip), target.moved_ports.get(number, number)


async def _http_get(check: Object, target: ProbeTarget) -> None:
    """Send a GET request to the container. A status from 200 to 399 is a success."""
    host, port = _address(check, target)
    if check.get("scheme") == "HTTPS":
        raise ProbeFailed("the local cluster has no TLS")
    url = f"http://{host}:{port}/{str(check.get('path') or '').removeprefix('/')}"
    headers = {"User-Agent": "kube-probe"}
    headers |= {item["name"]: item["value"] for item in check.get("httpHeaders") or []}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(url, allow_redirects=False) as answer,
    ):
        if not 200 <= answer.status < 400:
            raise ProbeFailed(f"HTTP probe failed with statuscode: {answer.status}")


async def watch_probe(
    probe: Probe,
    target: ProbeTarget,
    *,
    healthy: bool,
    on_change: Callable[[bool], None],
    failed: Callable[[str], None],
) -> None:
    """Probe a container until cancelled. Call `changed(healthy)` when the verdict changes.

    Args:
        healthy: the verdict before the first attempt
        on_change: called when the number of attempts in a row that contradict the verdict reaches
            the probe's threshold
        failed: called with the reason of a failure, unless the one before had the same
    """
    await asyncio.sleep(probe.initial_delay_seconds)
    contrary = 0  # number of attempts in a row that contradict the verdict
    last_failure = ""
    while True:
        why = await failure(probe, target)
        if why and why != last_failure:
            failed(why)
        last_failure = why
        contrary = contrary + 1 if healthy is bool(why) else 0
        if contrary >= (probe.failure_threshold if healthy else probe.success_threshold):
            healthy, contrary = not healthy, 0
            on_change(healthy)
        await asyncio.sleep(probe.period_seconds)
