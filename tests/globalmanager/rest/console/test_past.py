"""The curve of a job from before its page was opened, whatever Prometheus answers."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from common.lean_imports import system_tls
from edgeai.api.resources import ObjectRef
from edgeai.errors import SettingsError
from edgeai.kube.client import KubeClient
from edgeai.times import rfc3339, utc_now
from globalmanager.app import job_metrics_of, past_of
from globalmanager.engine.job_values import JobValues
from globalmanager.rest.access import KubernetesAccess
from globalmanager.rest.console.past import Past, PastLimits, expression
from globalmanager.rest.fair_rate import Rate
from globalmanager.settings import Settings
from globalmanager.tokenreviews import TokenReviews
from tests.globalmanager.rest.authority import Authority
from tests.globalmanager.rest.cluster import JI, TYPES, RestSide, object_of
from tests.globalmanager.rest.console.conftest import Browser
from tests.globalmanager.scripted_api import ScriptedApi, serve_scripted
from tests.monitoring.scraper import scraping
from tests.support import certificates
from tests.support.clock import Clock
from tests.support.http_server import serving
from tests.support.waiting import async_eventually

NOW = 1_800_000_000.0
MADE = "2027-01-15T07:00:00Z"  # an hour before
(TYPE,) = (type_ for type_ in TYPES if str(type_) == f"{JI}.edgeai.io")
REF = ObjectRef(TYPE, "a", "digits")
CURVE = f"/jobs/{TYPE}/a/digits/curve"
JOB = object_of("digits", namespace="a")
JOB["metadata"]["creationTimestamp"] = MADE
NOTHING = "Prometheus has no answer"


def with_loss(value: str) -> dict[str, Any]:
    return {**JOB, "status": {"metrics": [{"key": "loss", "value": value}]}}


def series(key: str, *points: tuple[float, str]) -> dict[str, Any]:
    return {"metric": {"key": key}, "values": points}


def matrix(*found: Any) -> dict[str, Any]:
    return {"status": "success", "data": {"resultType": "matrix", "result": found}}


@pytest.fixture
async def prometheus() -> AsyncIterator[ScriptedApi]:
    async with serve_scripted() as api:
        yield api


def past_at(prometheus: ScriptedApi, **limits: Any) -> Past:
    return Past(prometheus.url, limits=PastLimits(**limits), clock=Clock(NOW))


async def test_the_question_names_one_job_and_the_time_since_it_exists(
    prometheus: ScriptedApi,
) -> None:
    found = [
        series("loss", (NOW - 30, "0.5"), (NOW - 15, "NaN")),
        series("accuracy", (NOW - 15, "0.75")),
    ]
    prometheus.others = [prometheus.json(matrix(*found))]
    curve = await past_at(prometheus).curve("ann", REF, JOB)
    assert (curve.now, curve.note, curve.times) == (NOW, "", [NOW - 30, NOW - 15])
    assert curve.series == {"accuracy": [None, 0.75], "loss": [0.5, None]}
    (asked,) = prometheus.seen
    assert asked.path == "/api/v1/query_range"
    assert asked.query["query"] == (
        f'max by (key) (edgeai_job_metric{{resource="{TYPE}",job_namespace="a",job_name="digits"}})'
    )
    start, end = float(asked.query["start"]), float(asked.query["end"])
    assert (end - start, asked.query["step"]) == (3600.0, "15")


async def test_a_curve_goes_back_a_bounded_time_with_a_bounded_number_of_points(
    prometheus: ScriptedApi,
) -> None:
    prometheus.others = [prometheus.json(matrix())]
    old = {**JOB, "metadata": {**JOB["metadata"], "creationTimestamp": "2020-01-01T00:00:00Z"}}
    await past_at(prometheus).curve("ann", REF, old)
    (asked,) = prometheus.seen
    span = float(asked.query["end"]) - float(asked.query["start"])
    assert (span, span / float(asked.query["step"])) == (86400.0, 240.0)


async def test_a_clock_that_is_set_back_asks_for_no_time_before_the_start(
    prometheus: ScriptedApi,
) -> None:
    prometheus.others = [prometheus.json(matrix())]
    young = {**JOB, "metadata": {**JOB["metadata"], "creationTimestamp": "2099-01-01T00:00:00Z"}}
    odd = {**JOB, "metadata": {**JOB["metadata"], "creationTimestamp": "never"}}
    for job in (young, odd):
        assert (await past_at(prometheus).curve("ann", REF, job)).note == ""
    for asked in prometheus.seen:
        assert (asked.query["start"], asked.query["step"]) == (asked.query["end"], "15")


@pytest.mark.parametrize(
    ("value", "shown"), [('a"} or up{x="', r"a\"} or up{x=\""), ("a\\", "a\\\\"), ("a\n", r"a\n")]
)
def test_a_name_stays_a_value_of_a_label(value: str, shown: str) -> None:
    """The Kubernetes API has no such names, and this does not rely on that."""
    text = expression(ObjectRef(TYPE, value, value))
    assert text.endswith(f'job_namespace="{shown}",job_name="{shown}"}})')


LIES = {
    "an error": {"status": "error", "error": "<script>"},
    "another form": {"status": "success", "data": {"resultType": "vector", "result": []}},
    "no form": [1, 2],
    "a word for a number": matrix(series("loss", (NOW, "much"))),
    "points without order": matrix(series("loss", (NOW, "1"), (NOW - 1, "1"))),
    "points of the future": matrix(series("loss", (NOW + 3600, "1"))),
    "points of the past": matrix(series("loss", (0, "1"))),
    "too many points": matrix(series("loss", *((NOW - 300 + n, "1") for n in range(250)))),
    "too many bytes": matrix(series("x" * 300_000, (NOW, "1"))),
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_lying_prometheus_costs_a_note(
    prometheus: ScriptedApi, lie: str, capsys: pytest.CaptureFixture[str]
) -> None:
    prometheus.others = [prometheus.json(LIES[lie])]
    curve = await past_at(prometheus).curve("ann", REF, JOB)
    assert (curve.times, curve.series, NOTHING in curve.note) == ([], {}, True)
    assert prometheus.url not in curve.note
    assert "gives the console no curve" in capsys.readouterr().out


async def test_few_metrics_are_taken_and_none_with_a_long_name(prometheus: ScriptedApi) -> None:
    found = [series(f"k{number}", (NOW, "1")) for number in range(50)]
    odd = [series("", (NOW, "1")), series("a" * 100, (NOW, "1"))]
    prometheus.others = [prometheus.json(matrix(*odd, *found))]
    curve = await past_at(prometheus).curve("ann", REF, JOB)
    assert list(curve.series) == ["k0", "k1", "k10", "k11", "k12", "k13"]


async def test_a_dead_prometheus_a_slow_one_and_one_that_refuses_cost_a_note(
    prometheus: ScriptedApi,
) -> None:
    past = past_at(prometheus, answer_s=0.05)
    good = matrix(series("loss", (NOW, "1")))
    prometheus.others = [prometheus.hang(), prometheus.json(good, 503), _redirect]
    async with asyncio.timeout(5):
        for _ in range(3):
            assert NOTHING in (await past.curve("ann", REF, JOB)).note
    assert len(prometheus.seen) == 3
    dead = Past("http://127.0.0.1:9", clock=Clock(NOW))
    assert NOTHING in (await dead.curve("ann", REF, JOB)).note


async def test_a_prometheus_with_tls_needs_a_ca_of_the_system(
    prometheus: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = certificates.Authority(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*authority.issue("a", alternative="IP:127.0.0.1", usage="serverAuth"))
    prometheus.others = [prometheus.json(matrix(series("loss", (NOW, "1"))))]
    async with serving(prometheus.handle, tls=tls) as url:
        past = Past(url, clock=Clock(NOW))
        assert NOTHING in (await past.curve("ann", REF, JOB)).note
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        system_tls.cache_clear()
        try:
            assert (await past.curve("ann", REF, JOB)).series == {"loss": [1.0]}
        finally:
            system_tls.cache_clear()


async def _redirect(request: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": request.path_qs})


async def test_questions_have_a_rate_and_a_largest_number(prometheus: ScriptedApi) -> None:
    past = past_at(prometheus, each=Rate(1e-9, 2), at_once=1)
    prometheus.others = [prometheus.hang()]
    first = asyncio.create_task(past.curve("ann", REF, JOB))
    await async_eventually("a question", lambda: prometheus.seen)
    assert "busy" in (await past.curve("ann", REF, JOB)).note
    assert "Too many" in (await past.curve("ann", REF, JOB)).note
    assert "busy" in (await past.curve("ben", REF, JOB)).note
    prometheus.released.set()
    await first
    assert len(prometheus.seen) == 1


@pytest.fixture
async def guarded(
    authority: Authority, scripted_client: KubeClient, prometheus: ScriptedApi
) -> AsyncIterator[RestSide]:
    del authority  # it answers
    access = KubernetesAccess(TokenReviews(scripted_client))
    async with RestSide(access, past=past_at(prometheus)).running() as world:
        world.cluster.objects = [with_loss("1")]
        yield world


async def test_only_who_sees_the_job_gets_its_curve(
    browser: Browser, prometheus: ScriptedApi
) -> None:
    prometheus.others = [prometheus.json(matrix(series("loss", (NOW, "1"))))]
    assert (await browser.get(CURVE)).status == 303
    await browser.log_in("ben's")
    assert (await browser.get(CURVE)).status == 404
    assert prometheus.seen == []
    await browser.log_in("ann's")
    assert f'data-past="{CURVE}"' in (await browser.get(CURVE.removesuffix("/curve"))).text
    assert prometheus.seen == []
    answer = await browser.get(CURVE)
    assert answer.headers["Content-Type"].startswith("application/json")
    assert msgspec.json.decode(answer.text)["series"] == {"loss": [1.0]}


async def test_without_a_prometheus_a_curve_begins_with_this_process(
    authority: Authority, scripted_client: KubeClient
) -> None:
    del authority
    async with RestSide(KubernetesAccess(TokenReviews(scripted_client))).running() as world:
        world.cluster.objects = [with_loss("1")]
        browser = Browser(world)
        async with browser.client:
            await browser.log_in("ann's")
            await world.recent.sample()
            world.clock.now_s += 60.0
            world.cluster.objects = [with_loss("0.25")]
            await world.recent.sample()
            curve = msgspec.json.decode((await browser.get(CURVE)).text)
            assert (curve["series"], curve["is_by_round"]) == ({"loss": [1.0, 0.25]}, False)
            assert curve["times"][1] - curve["times"][0] == 60.0


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("prometheus:9090", "is not a URL like http://prometheus:9090"),
        ("http://user:secret@prometheus", "without credentials"),
        ("http://:secret@prometheus", "without credentials"),
    ],
)
def test_a_wrong_url_is_named(url: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        past_of(Settings(console_prometheus_url=url, job_metrics=5))


def test_a_prometheus_without_series_is_refused() -> None:
    with pytest.raises(SettingsError, match="--job-metrics above 0"):
        past_of(Settings(console_prometheus_url="http://prometheus:9090"))


@pytest.mark.parametrize("series", [-1, 10**9])
def test_a_wrong_number_of_series_is_named(series: int) -> None:
    with pytest.raises(SettingsError, match="from 0 to"):
        job_metrics_of(Settings(job_metrics=series))


def test_nobody_is_asked_unless_a_setting_says_so() -> None:
    assert (past_of(Settings()), job_metrics_of(Settings())) == (None, 0)


async def test_a_real_prometheus_remembers_the_curve(tmp_path: Path) -> None:
    """From a job's status over /metrics and Prometheus to the points of its page."""
    async with RestSide().running() as world:
        job = object_of("digits", namespace="a")
        job["metadata"]["creationTimestamp"] = rfc3339(utc_now() - timedelta(seconds=60))
        world.cluster.objects = [job]
        jobs = JobValues(world.registry)
        jobs.show([(TYPE, job)], limit=10)
        job["status"] = {"metrics": [{"key": "accuracy", "value": "0.5"}]}
        port = world.server.address[1]
        async with scraping(tmp_path, {"gm-0": port}) as prometheus:
            often = Rate(1000.0, 1000)
            limits = PastLimits(step_s=1.0, each=often, total=often)
            past = Past(prometheus.url, limits=limits)

            async def has_value() -> bool:
                curve = await past.curve("ann", REF, job)
                return 0.5 in curve.series.get("accuracy", [])

            await async_eventually("a point", has_value)
            other = await past.curve("ann", ObjectRef(TYPE, "b", "digits"), job)
            assert (other.series, other.note) == ({}, "")


def test_a_registry_without_a_limit_has_no_series() -> None:
    registry = CollectorRegistry()
    JobValues(registry).show([(TYPE, JOB)], limit=0)
    (family,) = (each for each in registry.collect() if each.name == "edgeai_job_metric")
    assert family.samples == []
