"""Values are read from a file and --set; what is wrong is named with its field and a remedy."""

from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli.install.errors import ValuesError
from edgeai.cli.install.values import COMPONENTS, GROUPS, Values, assign_all, read_values, values_of
from globalmanager.manifests import rbac
from tests.cluster.kustomize import DEPLOY

DIGEST: Final = "sha256:" + "a" * 64


def test_the_groups_and_components_are_those_of_deploy() -> None:
    assert set(GROUPS) == set(rbac.groups())
    names = {path.name for path in (DEPLOY / "components").iterdir()}
    assert set(COMPONENTS) <= names - set(GROUPS)


def test_a_file_and_assignments_give_the_values(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text("replicas: 3\nresources:\n  globalmanager:\n    limits: {memory: 2Gi}\n")
    given = read_values(
        path,
        [
            "replicas=4",
            "tag=1.10",
            "groups=edgeai.io, sedna.io",
            "resources.globalmanager.limits.cpu=2",
            f"digests.localcontroller={DIGEST}",
            "monitoring=true",
        ],
    )
    values = values_of(given)
    assert (values.replicas, values.tag, values.monitoring) == (4, "1.10", True)
    assert values.groups == ("edgeai.io", "sedna.io")
    assert values.resources["globalmanager"].limits == {"memory": "2Gi", "cpu": "2"}
    assert values.digests == {"localcontroller": DIGEST}
    assert values_of(read_values(None)) == Values()


def test_the_last_assignment_holds() -> None:
    assert values_of(read_values(None, ["replicas=3", "replicas=5"])).replicas == 5


def test_a_list_may_end_with_a_comma_and_an_error_shows_the_beginning_of_a_long_text() -> None:
    assert read_values(None, ["groups=edgeai.io,, sedna.io,"])["groups"] == [
        "edgeai.io",
        "sedna.io",
    ]
    with pytest.raises(ValuesError) as caught:
        values_of({"tag": "a" * 10_000})
    assert len(str(caught.value)) < 200


def test_an_assignment_changes_no_map_of_the_caller() -> None:
    """An upgrade compares its values with those of the record, which must stay as they were."""
    recorded: dict[str, Any] = {"resources": {"globalmanager": {"limits": {"memory": "1Gi"}}}}
    chosen = dict(recorded)
    assign_all(chosen, ["resources.globalmanager.limits.memory=2Gi"])
    assert chosen["resources"]["globalmanager"]["limits"] == {"memory": "2Gi"}
    assert recorded == {"resources": {"globalmanager": {"limits": {"memory": "1Gi"}}}}


FILES: Final = {
    "not a map": ("- 1\n", "must be a map"),
    "a text": ("hello\n", "must be a map"),
    "no YAML": ("a: [", "is not valid YAML"),
    "a tab": ("a:\n\t- b\n", "is not valid YAML"),
    "a key twice": ("replicas: 2\ntag: a\nreplicas: 3\n", "'replicas' is there twice"),
    "an inner key twice": ("digests:\n  a: 1\n  a: 2\n", "'a' is there twice"),
    "an object of Python": ("tag: !!python/object:os.system {}\n", "is not valid YAML"),
    "no text": ("\xff\x00", "is not valid YAML"),
    "very deep": ("[" * 5000, "is not valid YAML"),
    "very large": ("tag: " + "a" * 256 * 1024, "has more than 262144 bytes; is it another file?"),
}


@pytest.mark.parametrize(("text", "problem"), FILES.values(), ids=FILES)
def test_a_file_that_holds_no_values_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(text, encoding="latin-1" if "\xff" in text else "utf-8")
    with pytest.raises(ValuesError, match=problem if "\xff" not in text else "cannot be read"):
        read_values(path)


def test_a_file_that_is_not_there_or_a_directory_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.yaml", tmp_path):
        with pytest.raises(ValuesError, match=f"values file {path}: cannot be read"):
            read_values(path)


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text("# nothing yet\n")
    assert values_of(read_values(path)) == Values()


ASSIGNMENTS: Final = {
    "replicas": "must be KEY=VALUE",
    "=3": "must be KEY=VALUE",
    "replica=3": "'replica' is unknown; did you mean replicas?",
    "replicas.x=3": "replicas is of type integer; write --set replicas=VALUE",
    "digests=x": "write --set digests.globalmanager=",
    "digests.=x": "write --set digests.globalmanager=",
    ".=x": "'' is unknown",
}


@pytest.mark.parametrize(("assignment", "problem"), ASSIGNMENTS.items())
def test_an_assignment_of_another_form_is_refused(assignment: str, problem: str) -> None:
    with pytest.raises(ValuesError) as caught:
        read_values(None, [assignment])
    assert f"--set {assignment}" in str(caught.value)
    assert problem in str(caught.value)


BAD: Final[dict[str, tuple[dict[Any, Any], str]]] = {
    "unknown key": ({"replica": 3}, "key 'replica' is unknown; did you mean replicas?"),
    "key that is no text": ({1: 3}, "key '1' is unknown; known are namespace"),
    "name of Python": ({"edge_host": "x"}, "did you mean edgeHost?"),
    "unknown role": ({"digests": {"globalmanger": DIGEST}}, "did you mean globalmanager?"),
    "unknown resource": (
        {"resources": {"globalmanager": {"limits": {"memry": "1Gi"}}}},
        "values: resources: globalmanager: limits: key 'memry' is unknown; did you mean memory?",
    ),
    "number for text": ({"tag": 1.1}, "values: tag: 1.1 is no text"),
    "text for number": ({"replicas": "many"}, "values: replicas: 'many' is no integer"),
    "list for text": ({"namespace": ["a"]}, "values: namespace: ['a'] is no text"),
    "null": ({"replicas": None}, "values: replicas: None is no integer"),
    "no replicas": ({"replicas": 0}, "values: replicas: 0 is out of range; write 1 to 9"),
    "many replicas": ({"replicas": 10**30}, "values: replicas: "),
    "namespace with a dot": ({"namespace": "a.b"}, "values: namespace: 'a.b' is wrong"),
    "empty namespace": ({"namespace": ""}, "values: namespace: '' is wrong"),
    "long namespace": ({"namespace": "a" * 64}, "values: namespace: "),
    "registry with a scheme": ({"registry": "https://r.example"}, "values: registry: "),
    "tag with a digest": ({"tag": f"1@{DIGEST}"}, "values: tag: "),
    "short digest": (
        {"digests": {"globalmanager": "sha256:12"}},
        "values: digests.globalmanager: ",
    ),
    "no groups": ({"groups": []}, "values: groups: is empty; name at least one of edgeai.io"),
    "unknown group": ({"groups": ["edgeai.oi"]}, "'edgeai.oi' is unknown; did you mean edgeai.io?"),
    "group twice": ({"groups": ["sedna.io", "sedna.io"]}, "'sedna.io' is there twice"),
    "unknown component": ({"components": ["kubedge"]}, "did you mean kubeedge?"),
    "unknown identity": ({"edgeAuth": "password"}, "values: edgeAuth: 'password' is no "),
    "identity of another way": (
        {"components": ["kubeedge"], "edgeAuth": "serviceaccount"},
        "values: edgeAuth: 'serviceaccount' does not go with kubeedge",
    ),
    "port without a host": ({"nodePort": 30900}, "values: edgeHost: is missing"),
    "low port": ({"nodePort": 80, "edgeHost": "a"}, "values: nodePort: 80 is no port of nodes"),
    "host with a port": ({"edgeHost": "a:9000"}, "write it without wss:// and without a port"),
    "host with a scheme": ({"edgeHost": "wss://a"}, "write it without wss:// and without a port"),
    "quantity": (
        {"resources": {"globalmanager": {"requests": {"cpu": "much"}}}},
        "values: resources.globalmanager.requests.cpu: 'much' is wrong; write as in 250m",
    ),
    "account": ({"prometheus": "prometheus"}, "values: prometheus: 'prometheus' is no NAMESPACE/"),
    "pods API without a scheme": ({"podsApi": "127.0.0.1:10550"}, "values: podsApi: '127.0.0.1"),
    "control characters": ({"namespace": "a\x1b[31m"}, "\\x1b"),
}


@pytest.mark.parametrize(("given", "problem"), BAD.values(), ids=BAD)
def test_a_bad_value_is_named_with_its_field(given: dict[Any, Any], problem: str) -> None:
    with pytest.raises(ValuesError) as caught:
        values_of(given)
    assert problem in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_kubeedge_is_mtls() -> None:
    assert values_of({"components": ["kubeedge"], "edgeAuth": "mtls"}).identity == "kubeedge"


def test_an_ipv6_address_is_a_host() -> None:
    assert values_of({"edgeHost": "fd00::1", "nodePort": 30900}).host == "fd00::1"
