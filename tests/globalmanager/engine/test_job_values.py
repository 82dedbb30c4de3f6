"""Which metrics of jobs become series, when there are too many."""

from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from edgeai.api.resources import Object, ResourceType
from globalmanager.engine.job_values import JobValues, chosen

TYPE = ResourceType("edgeai.io", "v1alpha1", "models", "Model")


def job(
    name: str, namespace: str = "a", made: str = "", **values: Any
) -> tuple[ResourceType, Object]:
    metrics = [{"key": key, "value": value} for key, value in values.items()]
    metadata = {"name": name, "namespace": namespace, "creationTimestamp": made}
    return TYPE, {"metadata": metadata, "status": {"metrics": metrics}}


def names(jobs: list[tuple[ResourceType, Object]], limit: int) -> tuple[list[str], int]:
    shown, left_out = chosen(jobs, limit)
    return [f"{each.labels[1]}/{each.labels[2]}/{each.labels[3]}" for each in shown], left_out


def test_only_numbers_are_series() -> None:
    jobs = [job("x", loss="0.5", word="much", bad="nan", worse="inf", **{"k" * 65: "1"})]
    assert names(jobs, 10) == (["a/x/loss"], 0)
    assert names([(TYPE, {"metadata": {"name": "y"}})], 10) == ([], 0)


def test_one_namespace_leaves_room_for_others() -> None:
    greedy = [job(f"j{number:03}", "greedy", loss="1") for number in range(500)]
    jobs = [*greedy, job("own", "small", loss="1"), job("own", "tiny", loss="1")]
    shown, left_out = names(jobs, 30)
    assert {each for each in shown if "own" in each} == {"small/own/loss", "tiny/own/loss"}
    assert (len(shown), left_out) == (12, 490)


def test_the_newest_jobs_have_series_and_a_bounded_number_of_each_job() -> None:
    many = {f"k{number}": "1" for number in range(9)}
    jobs = [job("old", made="2026-01-01", **many), job("new", made="2026-01-02", **many)]
    shown, left_out = names(jobs, 8)
    assert shown == [*(f"a/new/k{number}" for number in range(6)), "a/old/k0", "a/old/k1"]
    assert left_out == 4


def test_more_namespaces_than_series_are_no_more_series() -> None:
    jobs = [job("x", f"n{number}", loss="1") for number in range(9)]
    assert (len(names(jobs, 4)[0]), names(jobs, 4)[1]) == (4, 5)


def test_a_scrape_tells_the_values_and_how_many_are_left_out() -> None:
    registry = CollectorRegistry()
    values = JobValues(registry)
    values.show([job("x", 'a"\n', loss="0.5", accuracy="1")], limit=1)
    text = generate_latest(registry).decode()
    where = 'job_name="x",job_namespace="a\\"\\n",key="accuracy",resource="models.edgeai.io"'
    assert f"edgeai_job_metric{{{where}}} 1.0\n" in text
    assert "edgeai_job_metrics_left_out 1.0\n" in text
