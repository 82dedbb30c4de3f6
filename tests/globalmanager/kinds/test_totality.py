"""Whatever a user writes into .spec or .status, no kind raises."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from globalmanager.contract import Kind
from globalmanager.kinds import KINDS
from tests.fuzz.inputs import paths, replaced
from tests.globalmanager.kinds.edge.samples import (
    federated_learning_spec,
    incremental_learning_spec,
    joint_inference_spec,
)
from tests.globalmanager.kinds.elastic import world as elastic
from tests.globalmanager.kinds.training.samples import pytorch_spec, tf_spec
from tests.support.world import NOW, World, job, report

WORDS = st.sampled_from(
    ["", "edge0", "small", "IBT", "/models/a", "s3://b/k", "http://[", "..", "a" * 300, "\x00"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "key", "spec", "url", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)
VALID_SPECS: dict[str, Any] = {
    "JointInferenceService": joint_inference_spec(
        edge={
            "hardExampleMining": {"name": "IBT", "parameters": [{"key": "a", "value": "1"}]},
            "hpa": {"maxReplicas": 2},
        }
    ),
    "FederatedLearningJob": federated_learning_spec(
        transmitter={"ws": {}}, pretrainedModel={"name": "big"}
    ),
    "IncrementalLearningJob": incremental_learning_spec(
        initialModel={"name": "small"},
        dataset={"name": "data0", "trainProb": 0.5},
        credentialName="keys",
    ),
    "PyTorchJob": pytorch_spec(
        policy="ExitCode", run={"backoffLimit": 1, "restartScope": "Job"}, elasticPolicy={}
    ),
    "TrainingJob": elastic.example(
        worker={"minReplicas": 1}, restartPolicy="OnFailure", slotsPerWorker=2
    )["spec"],
    "TFJob": tf_spec({"activeDeadlineSeconds": 5}, Worker=2, PS=1),
    "Dataset": {"url": "/data/a.csv", "format": "csv", "nodeName": "edge0"},
    "Model": {"url": "/models/a", "device_soc_versions": ["x"]},
}


def call_every_function(kind: Kind, object_: Any) -> None:
    """Read, plan, assignments and fold of the kind, in each version of its resources."""
    for type_ in kind.definition.types:
        world = World(kind, object_, type_).model("small").model("big").nodes("edge0")
        world.dataset("data0", "edge0").dataset("data1", "edge1")
        world.pod("edge", "edge0").contact("edge0", connected=False)
        world.plan(NOW)
        world.kind.assignments(world.observed())
        world.settle()
        world.receive(report(counts={"numberOfSamples": 1, "seen": 2}))


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.definition.name) for kind in KINDS])
@given(garbage=JSON)
def test_no_kind_raises_for_any_spec(kind: Kind, garbage: Any) -> None:
    call_every_function(kind, job(spec=garbage))


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.definition.name) for kind in KINDS])
@given(data=st.data())
def test_no_kind_raises_for_a_valid_spec_with_one_wrong_value(
    kind: Kind, data: st.DataObject
) -> None:
    valid = VALID_SPECS.get(kind.definition.name, {})
    path = data.draw(st.sampled_from(list(paths(valid))))
    call_every_function(kind, job(spec=replaced(valid, path, data.draw(JSON))))


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind.definition.name) for kind in KINDS])
@given(
    status=st.dictionaries(
        st.sampled_from(
            [
                *("conditions", "workers", "startTime", "metrics", "numberOfSamples", "finished"),
                *("restarts", "jobRestarts", "replicaStatuses", "completionTime", "profile"),
                *("outOfContact", "phase", "targetWorkers", "currentWorkers", "nextWorkerIndex"),
                *("restartCount", "replacedWorkers", "currentScaler"),
            ]
        ),
        JSON,
    )
)
def test_no_kind_raises_for_any_status(kind: Kind, status: Any) -> None:
    call_every_function(kind, job(spec=VALID_SPECS.get(kind.definition.name, {}), status=status))
