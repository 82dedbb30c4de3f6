"""Pod templates: what the user gave, plus what a worker needs."""

from typing import Any

import msgspec
import pytest

from edgeai.api.resources import Object
from edgeai.api.specs import InvalidSpec
from edgeai.api.workers import WorkerForm
from edgeai.ids import WorkerName
from globalmanager.kinds.edge import worker_form
from globalmanager.kinds.edge.jointinferenceservice import KIND
from globalmanager.kinds.shared import pods, storage
from tests.support.manifests import deployed
from tests.support.world import SETTINGS, World, job

CONTAINER = {"name": "main", "image": "registry.test/worker:1"}
SCRIPT = {
    "scriptDir": "/code",
    "scriptBootFile": "run.py",
    "frameworkType": "tensorflow",
    "frameworkVersion": "1.18",
}


def form(**fields: Any) -> WorkerForm:
    return msgspec.convert(fields, WorkerForm)


def template(container: Object | None = None, **spec: Any) -> WorkerForm:
    return form(template={"spec": {"containers": [{**CONTAINER, **(container or {})}], **spec}})


def built(
    given: WorkerForm, env: Any = (), url: str = "", name: str = "", *, is_edge: bool = False
) -> Object:
    worker_form.check(given, "spec.edgeWorker")
    sources = [storage.Source(env="MODEL_URL", url=url)] if url else []
    return worker_form.build(
        World(KIND, job()).observed(),
        given,
        role="edge",
        env=env,
        data=storage.place(sources, SETTINGS),
        name=WorkerName(name) if name else None,
        is_edge=is_edge,
    )


# ---- environment --------------------------------------------------------------------------------

OURS = (pods.literal("A", "ours"), pods.literal("B", "ours"))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(None, "A=ours B=ours", id="none given"),
        pytest.param([("C", "x")], "A=ours B=ours C=x", id="ours first, so $(A) can be used"),
        pytest.param([("C", "x"), ("A", "x")], "A=x B=ours C=x", id="the user's takes our place"),
        pytest.param([("C", "x"), ("C", "y")], "A=ours B=ours C=y", id="the last one counts"),
    ],
)
def test_environment(given: Any, expected: str) -> None:
    env = None if given is None else [pods.literal(name, value) for name, value in given]
    (container,) = built(template({"env": env}), OURS)["spec"]["containers"]
    assert " ".join(f"{item['name']}={item['value']}" for item in container["env"]) == expected


def test_every_container_gets_environment_and_mounts() -> None:
    two = form(template={"spec": {"containers": [CONTAINER, {**CONTAINER, "name": "side"}]}})
    first, second = built(two, OURS, url="/models/a.onnx")["spec"]["containers"]
    assert first["env"] == second["env"]
    assert first["volumeMounts"] == second["volumeMounts"] != []


def test_the_worker_api_is_that_of_the_pods_own_host() -> None:
    host_ip, secret, server = pods.worker_api(SETTINGS, "digits-edge", "train-0")
    assert host_ip["valueFrom"] == {"fieldRef": {"fieldPath": "status.hostIP"}}
    assert server == pods.literal("LC_SERVER", "http://$(HOST_IP):9100/w/$(WORKER_SECRET)")
    reference = {"name": "digits-edge", "key": "train-0"}
    assert secret == {"name": "WORKER_SECRET", "valueFrom": {"secretKeyRef": reference}}


# ---- the rest of the pod ------------------------------------------------------------------------


def test_the_users_fields_stay() -> None:
    given = template({"resources": {"limits": {"cpu": "1"}}}, tolerations=[{"operator": "Exists"}])
    spec = built(given)["spec"]
    assert spec["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
    assert spec["tolerations"] == [{"operator": "Exists"}]


def test_the_users_template_is_not_changed_in_place() -> None:
    given = template({"env": [pods.literal("C", "x")], "volumeMounts": []}, volumes=[])
    before = msgspec.json.encode(given)
    built(given, OURS, url="/models/a.onnx")
    assert msgspec.json.encode(given) == before


def test_labels_find_the_pod_and_win_over_the_users() -> None:
    labels = {"team": "vision", "edgeai.io/uid": "forged"}
    given = form(template={"metadata": {"labels": labels}, "spec": {"containers": [CONTAINER]}})
    found = built(given, name="digits-edge")["metadata"]["labels"]
    assert found["team"] == "vision"
    assert found["edgeai.io/uid"] == "uid-1"
    assert found["edgeai.io/worker"] == "digits-edge"
    assert "edgeai.io/worker" not in built(given)["metadata"]["labels"]


def test_annotations_stay() -> None:
    metadata = {"annotations": {"a": "b"}, "labels": None}
    given = form(template={"metadata": metadata, "spec": {"containers": [CONTAINER]}})
    assert built(given)["metadata"]["annotations"] == {"a": "b"}


def test_a_deployments_pods_restart_always() -> None:
    assert built(template(restartPolicy="Never"))["spec"]["restartPolicy"] == "Always"


def test_models_are_fetched_before_the_users_init_containers() -> None:
    given = template(initContainers=[{"name": "warm-up", "image": "x"}])
    spec = built(given, url="s3://bucket/a.onnx")["spec"]
    names = [container["name"] for container in spec["initContainers"]]
    assert names == ["storage-initializer", "warm-up"]


def test_the_users_volume_and_mount_of_the_same_name_win() -> None:
    volume = {"name": "edgeai-data-0", "emptyDir": {}}
    mount = {"name": "edgeai-data-0", "mountPath": "/home/data/models", "readOnly": True}
    given = template({"volumeMounts": [mount]}, volumes=[volume])
    spec = built(given, url="/models/a.onnx")["spec"]
    assert spec["volumes"] == [volume]
    assert spec["containers"][0]["volumeMounts"] == [mount]


@pytest.mark.parametrize(
    ("given", "node"),
    [
        pytest.param(form(nodeName="edge0", workerSpec=SCRIPT), "edge0", id="of the worker"),
        pytest.param(template(nodeName="edge0"), "edge0", id="of the template"),
        pytest.param(template(nodeSelector={"zone": "a"}), "", id="selected"),
        pytest.param(template(nodeName=None), "", id="null"),
    ],
)
def test_node(given: WorkerForm, node: str) -> None:
    assert worker_form.fixed_node(given) == node
    assert built(given)["spec"].get("nodeName", "") == node


# ---- tolerations --------------------------------------------------------------------------------

UNREACHABLE = "node.kubernetes.io/unreachable"


def tolerations(given: WorkerForm, *, is_edge: bool = True) -> list[Object]:
    found: list[Object] = built(given, is_edge=is_edge)["spec"].get("tolerations", [])
    return found


def test_a_pinned_edge_worker_stays_where_its_local_controller_does() -> None:
    (daemon_set,) = [each for each in deployed() if each["kind"] == "DaemonSet"]
    its = daemon_set["spec"]["template"]["spec"]["tolerations"]
    assert tolerations(template(nodeName="edge0")) == its


@pytest.mark.parametrize(
    ("given", "is_edge"),
    [
        pytest.param(template(), True, id="on no fixed node"),
        pytest.param(template(nodeName="cloud0"), False, id="of the cloud"),
    ],
)
def test_any_other_worker_has_the_tolerations_of_kubernetes(
    given: WorkerForm, is_edge: bool
) -> None:
    assert tolerations(given, is_edge=is_edge) == []


def test_the_users_toleration_of_the_same_key_wins() -> None:
    minute = {"key": UNREACHABLE, "operator": "Exists", "tolerationSeconds": 60}
    gpu = {"key": "gpu", "operator": "Exists"}
    found = tolerations(template(nodeName="edge0", tolerations=[minute, gpu]))
    assert [each for each in found if each["key"] == UNREACHABLE] == [minute]
    assert found[-2:] == [minute, gpu]
    assert len(found) == 4


def test_a_user_who_tolerates_every_key_gets_no_more_tolerations() -> None:
    everything = [{"operator": "Exists", "tolerationSeconds": 60}]
    assert tolerations(template(nodeName="edge0", tolerations=everything)) == everything


def test_an_invalid_toleration_is_named() -> None:
    with pytest.raises(InvalidSpec, match=r"tolerations\[0\]"):
        worker_form.check(template(nodeName="edge0", tolerations=["all"]), "spec.edgeWorker")


# ---- workerSpec ---------------------------------------------------------------------------------


def test_a_script_becomes_a_container() -> None:
    parameters = [{"key": "nms_threshold", "value": "0.6"}]
    spec = built(form(workerSpec={**SCRIPT, "parameters": parameters}), OURS)["spec"]
    assert spec["containers"] == [
        {
            "name": "worker",
            "image": "registry.test/tensorflow:1.18",
            "command": ["python3", "/code/run.py"],
            "env": [*OURS, pods.literal("nms_threshold", "0.6")],
            "volumeMounts": [{"name": "edgeai-scripts", "mountPath": "/code", "readOnly": True}],
        }
    ]
    host_path = {"path": "/code", "type": "Directory"}
    assert spec["volumes"] == [{"name": "edgeai-scripts", "hostPath": host_path}]


# ---- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({}, "spec.w: has no container", id="neither form"),
        pytest.param(
            {"template": {}, "workerSpec": SCRIPT},
            "spec.w: has both workerSpec and template",
            id="both forms",
        ),
        pytest.param({"template": {}}, "spec.w.template.spec: is missing", id="no pod spec"),
        pytest.param(
            {"template": {"spec": {"containers": []}}},
            "spec.w.template.spec.containers: has the wrong form",
            id="no container",
        ),
        pytest.param(
            {"template": {"spec": {"containers": [{"name": "x"}]}}},
            "spec.w.template.spec.containers[0].image: is missing",
            id="no image",
        ),
        pytest.param(
            {"template": {"spec": {"containers": [{**CONTAINER, "env": [5]}]}}},
            "spec.w.template.spec.containers[0].env[0]: has the wrong form",
            id="garbage in env",
        ),
        pytest.param(
            {"template": {"spec": {"containers": [{**CONTAINER, "args": ["--port", 8080]}]}}},
            "spec.w.template.spec.containers[0].args[1]: has the wrong form",
            id="number as an argument",
        ),
        pytest.param(
            {"template": {"spec": {"containers": [CONTAINER], "volumes": {}}}},
            "spec.w.template.spec.volumes: has the wrong form",
            id="volumes are no list",
        ),
        pytest.param(
            {"nodeName": "a", "template": {"spec": {"containers": [CONTAINER], "nodeName": "b"}}},
            "spec.w.nodeName: 'a' is not 'b'",
            id="two nodes",
        ),
        pytest.param(
            {"nodeName": "../x", "workerSpec": SCRIPT},
            "spec.w.nodeName: '../x' cannot be the name of a Node",
            id="no node name",
        ),
        pytest.param(
            {"workerSpec": {**SCRIPT, "scriptDir": "code"}},
            "spec.w.workerSpec.scriptDir: 'code' is no absolute path",
            id="relative directory",
        ),
        pytest.param(
            {"workerSpec": {**SCRIPT, "scriptBootFile": "../run.py"}},
            "spec.w.workerSpec.scriptBootFile: '../run.py' is no path within",
            id="script outside",
        ),
        pytest.param(
            {"workerSpec": {**SCRIPT, "parameters": [{"key": "1 x"}]}},
            "spec.w.workerSpec.parameters[0].key: '1 x' cannot be the name",
            id="no variable name",
        ),
    ],
)
def test_refusals(given: Any, message: str) -> None:
    with pytest.raises(InvalidSpec) as error:
        worker_form.check(form(**given), "spec.w")
    assert str(error.value).startswith(message)
