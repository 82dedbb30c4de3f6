"""Label and field selectors, as texts and as objects: what they match, and what is refused."""

import pytest

from edgeai.localcluster.objects import errors, selectors
from edgeai.localcluster.objects.resources import CONFIGMAPS, PODS, Object
from tests.edgeai.localcluster.conftest import pod

LABELS = {"app": "web", "tier": "edge"}
MATCHES = {
    "": True,
    "app=web": True,
    "app==web": True,
    "app=db": False,
    "app!=db": True,
    "app!=web": False,
    "missing!=x": True,
    "app": True,
    "missing": False,
    "!missing": True,
    "!app": False,
    "app in (web, db)": True,
    "app in (db)": False,
    "app notin (db)": True,
    "missing notin (db)": True,
    "app=web,tier in (edge,cloud),!missing": True,
    "app=web,tier=cloud": False,
    " app = web , tier ": True,
    "app=": False,
    "edgeai.io/name=": False,
    "inner notin (a)": True,
}


@pytest.mark.parametrize("text", MATCHES)
def test_label_selector(text: str) -> None:
    selector = selectors.Selector(selectors.parse_requirements("label", text))
    assert selector.matches(selectors.Selectable(LABELS, {})) is MATCHES[text]


@pytest.mark.parametrize("text", ["a=b=c", "a in b", "(a)", "a in (b", ",", "=b", "a,,b"])
def test_a_malformed_label_selector_is_refused(text: str) -> None:
    with pytest.raises(errors.BadRequest, match="label selector"):
        selectors.parse_requirements("label", text)


FIELDS = {
    "metadata.name=one": True,
    "metadata.name!=one": False,
    "metadata.namespace=default": True,
    "spec.nodeName=edge-1": True,
    "spec.nodeName==edge-1,status.phase=Running": True,
    "status.phase!=Running": False,
    "status.podIP=": True,
}


@pytest.mark.parametrize("text", FIELDS)
def test_field_selector(text: str) -> None:
    object_: Object = {**pod(nodeName="edge-1"), "status": {"phase": "Running"}}
    selector = selectors.parse(PODS, "", text)
    assert selector.matches(selectors.selectable(PODS, object_)) is FIELDS[text]


@pytest.mark.parametrize("text", ["spec.nodeName=x", "data.a=1", "metadata.name"])
def test_a_field_that_cannot_be_selected_is_refused(text: str) -> None:
    with pytest.raises(errors.BadRequest, match="field"):
        selectors.parse(CONFIGMAPS, "", text)


def test_label_selector_objects() -> None:
    expressions = [
        {"key": "tier", "operator": "In", "values": ["edge"]},
        {"key": "missing", "operator": "DoesNotExist"},
    ]
    wanted: Object = {"matchLabels": {"app": "web"}, "matchExpressions": expressions}
    assert selectors.is_label_match(wanted, LABELS)
    assert not selectors.is_label_match(None, LABELS)
