"""Lines of logs become points, and points become curves."""

import re

import pytest

from edgeai.client.curves import curves, points_of


def test_points_are_the_finite_numbers_of_metrics_and_nothing_else() -> None:
    lines = [
        '{"event": "metrics", "round": 1, "loss": 0.5, "note": "x", "bad": NaN}',
        '{"event": "result", "round": 1}',
        "[1]",
        "[" * 100_000,
        "round 2",
        '{"event": "metrics"}',
    ]
    assert points_of(lines) == [{"round": 1, "loss": 0.5}]


def test_a_curve_for_each_metric_goes_from_left_to_right_and_up_to_the_largest() -> None:
    points = [{"round": 1, "loss": 4.0}, {"round": 2, "loss": 1.0, "<b>": 7}, {"loss": 1.0}]
    loss, other = re.findall(r"<div>(.*?)</div>", curves(points))
    assert loss.startswith("loss 1<br>")
    assert 'points="0.0,0.0 240.0,40.0"' in loss
    assert other.startswith("&lt;b&gt; 7<br>")


def test_without_points_there_is_no_curve() -> None:
    assert curves([]) == ""
    assert curves([{"round": 1}]) == ""


@pytest.mark.parametrize(
    "lines",
    [
        ('{"event": "metrics", "round": 1}', '{"event": "metrics", "loss": 2}'),
        ('{"event": "metrics", "round": 1, "a": 1}', '{"event": "metrics", "loss": 2}'),
        (f'{{"event": "metrics", "round": 1, "loss": 1{"0" * 400}}}',),
        (
            '{"event": "metrics", "round": -1e308, "loss": 1e308}',
            '{"event": "metrics", "round": 1e308, "loss": -1e308}',
        ),
        (
            '{"event": "metrics", "round": 1, "loss": 0}',
            '{"event": "metrics", "round": 2, "loss": 5e-324}',
        ),
    ],
)
def test_any_points_can_be_drawn(lines: tuple[str, ...]) -> None:
    assert re.search("nan|inf", curves(points_of(lines))) is None
