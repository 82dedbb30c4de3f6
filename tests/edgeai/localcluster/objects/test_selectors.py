"""LabelSelector objects: what they match."""

from edgeai.localcluster.objects import selectors
from edgeai.localcluster.objects.resources import Object

LABELS = {"app": "web", "tier": "edge"}


def test_label_selector_objects() -> None:
    expressions = [
        {"key": "tier", "operator": "In", "values": ["edge"]},
        {"key": "missing", "operator": "DoesNotExist"},
    ]
    wanted: Object = {"matchLabels": {"app": "web"}, "matchExpressions": expressions}
    requirements = selectors.from_label_selector(wanted)
    assert requirements is not None
    assert all(requirement.matches(LABELS) for requirement in requirements)
    assert selectors.from_label_selector(None) is None
