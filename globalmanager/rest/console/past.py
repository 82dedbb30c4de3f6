"""The curve of a job from before its page was opened, from a Prometheus that scrapes edgeai.

One question for each opened page, about the series of one job. The answer comes from outside, so
its size, its form and its times are checked. A Prometheus that is dead, slow or wrong costs a note
on the page.
"""

import asyncio
import json
import math
import ssl
from itertools import pairwise
from typing import Final

import aiohttp
import msgspec

from common.clock import SYSTEM_CLOCK, Clock, loop_time
from common.lean_imports import system_tls
from common.rate_limited_warning import RateLimitedWarning
from common.settings import check_url
from edgeai import times
from edgeai.api.resources import Object, ObjectRef
from edgeai.errors import EdgeAIError, Overloaded
from edgeai.faults.summary import CURVES
from globalmanager.engine.job_values import MAX_KEY_CHARS, NAME
from globalmanager.rest.console.recent import Curve
from globalmanager.rest.fair_rate import FairRate, Rate

POINTS: Final = 240
LATE_S: Final = 15.0  # a point may be so much after the end


class PastLimits(msgspec.Struct, frozen=True, kw_only=True):
    span_s: float = 24 * 3600.0
    """How far back a curve goes at most; it begins with the job."""
    step_s: float = 15.0
    """Shortest time between two points."""
    answer_s: float = 3.0
    """Longest time until Prometheus has answered."""
    answer_bytes: int = 256 * 1024
    """Largest answer."""
    at_once: int = 4
    """Questions at the same time."""
    each: Rate = Rate(1.0, 10)
    """Questions of one user per second, or of all ServiceAccounts of a namespace."""
    total: Rate = Rate(5.0, 20)
    """Questions of all per second."""


class _Series(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Data(msgspec.Struct, frozen=True, tag_field="resultType", tag="matrix"):
    result: list[_Series]


class _Answer(msgspec.Struct, frozen=True, tag_field="status", tag="success"):
    data: _Data


class _Unusable(EdgeAIError):
    """What Prometheus answers is no curve."""


class Past:
    """Args: url: of the Prometheus. Raises: SettingsError"""

    def __init__(
        self,
        url: str,
        *,
        limits: PastLimits = PastLimits(),  # noqa: B008 - frozen
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        check_url("flag --console-prometheus-url", url, like="http://prometheus:9090")
        self._url = f"{url.rstrip('/')}/api/v1/query_range"
        self._limits = limits
        self._clock = clock
        self._rate = FairRate(
            of_source=limits.each, total=limits.total, part="questions to Prometheus"
        )
        self._asking = 0
        self._warning = RateLimitedWarning("Prometheus gives the console no curve")

    async def curve(self, tenant: str, ref: ObjectRef, job: Object) -> Curve:
        """The metrics of the job since it exists. A failure is told in the note."""
        now = self._clock.utcnow().timestamp()
        try:
            self._rate.take(tenant, loop_time())
        except Overloaded:
            return Curve(now=now, note="Too many curves were asked for: load the page later.")
        if self._asking >= self._limits.at_once:
            return Curve(now=now, note="Prometheus is busy with other pages: load this one later.")
        self._asking += 1
        try:
            return await self._ask(ref, job, now)
        except (aiohttp.ClientError, TimeoutError, OSError, _Unusable, msgspec.MsgspecError) as why:
            self._warning.log(url=self._url, problem=str(why)[:200] or type(why).__name__)
            note = "Prometheus has no answer for the time before this page was opened."
            return Curve(now=now, note=note)
        finally:
            self._asking -= 1

    async def _ask(self, ref: ObjectRef, job: Object, now: float) -> Curve:
        start = max(_made(job, now), now - self._limits.span_s)
        step = max(self._limits.step_s, math.ceil((now - start) / POINTS))
        query = {
            "query": expression(ref),
            "start": f"{start:.3f}",
            "end": f"{now:.3f}",
            "step": f"{step:g}",
        }
        async with (
            asyncio.timeout(self._limits.answer_s),
            aiohttp.ClientSession() as session,
            session.get(
                self._url, params=query, allow_redirects=False, ssl=self._tls()
            ) as response,
        ):
            if response.status != 200:
                raise _Unusable(f"HTTP {response.status}")
            body = bytearray()
            async for data in response.content.iter_any():
                body += data
                if len(body) > self._limits.answer_bytes:
                    raise _Unusable(f"more than {self._limits.answer_bytes} bytes")
        answer = msgspec.json.decode(bytes(body), type=_Answer)
        return _curve(answer.data.result, start - step, now)

    def _tls(self) -> ssl.SSLContext | bool:
        return system_tls() if self._url.lower().startswith("https:") else True


def expression(ref: ObjectRef) -> str:
    """The series of one job. The replicas of the GlobalManager tell the same values."""
    labels = {"resource": str(ref.type), "job_namespace": ref.namespace, "job_name": ref.name}
    # The strings of PromQL have the escapes of JSON.
    selector = ",".join(f"{name}={json.dumps(value)}" for name, value in labels.items())
    return f"max by (key) ({NAME}{{{selector}}})"


def _made(job: Object, now: float) -> float:
    """When the job was made. A job of the same name may have been there before."""
    try:
        creation = times.parse(str(job["metadata"].get("creationTimestamp")))
    except ValueError:
        return now
    return min(creation.timestamp(), now)


def _curve(found: list[_Series], start: float, now: float) -> Curve:
    """Raises: _Unusable"""
    by_key = {
        one_series.metric.get("key", ""): _points(one_series, start, now) for one_series in found
    }
    keys = sorted(key for key in by_key if 0 < len(key) <= MAX_KEY_CHARS)[:CURVES]
    moments = sorted({moment for key in keys for moment in by_key[key]})
    series = {key: [by_key[key].get(moment) for moment in moments] for key in keys}
    return Curve(now=now, times=moments, series=series)


def _points(series: _Series, start: float, now: float) -> dict[float, float | None]:
    moments = [moment for moment, _ in series.values]
    is_ordered = all(one < other for one, other in pairwise(moments))
    if len(moments) > POINTS + 2 or not is_ordered:
        raise _Unusable("points without order, or too many")
    if moments and not (start <= moments[0] and moments[-1] <= now + LATE_S):
        raise _Unusable("points of a time that nobody asked about")
    try:
        values = [float(text) for _, text in series.values]
    except ValueError as error:
        raise _Unusable("a value that is no number") from error
    numbers = (value if math.isfinite(value) else None for value in values)
    return dict(zip(moments, numbers, strict=True))
