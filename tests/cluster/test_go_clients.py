"""Go clients decode all that our definitions accept in groups that others own.

One object that a typed client cannot decode stops its informer for all objects of the kind.
OBJECTS in the environment is the number of objects of each kind.
"""

import os
import re
from collections.abc import Iterator
from http.client import BAD_REQUEST, UNPROCESSABLE_ENTITY
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, find, given, reject, settings

from edgeai.api.resources import Object, ResourceType
from edgeai.cli.api import ApiError
from globalmanager.contract import Kind
from globalmanager.kinds import KINDS
from globalmanager.manifests import crds
from tests.cluster import decoder
from tests.cluster.binaries import Unavailable
from tests.cluster.decoder import Answer, Decoder
from tests.cluster.schema_values import values
from tests.support.client import Client

OBJECTS: Final = int(os.environ.get("OBJECTS") or 200)
SETTINGS: Final = settings(
    max_examples=OBJECTS,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
FIRST: Final = settings(SETTINGS, max_examples=1000, phases=[Phase.generate])
TYPES: Final = [
    pytest.param(kind, type_, id=f"{type_.api_version}/{type_.kind}")
    for kind in KINDS
    for type_ in kind.definition.types
    if type_.group != "edgeai.io"
]
_TRAINING: Final = """spec.runPolicy.restartScope status.observedGeneration status.finished
status.restarts status.containerRestarts status.jobRestarts status.workers status.outOfContact"""
OWN: Final = {
    "kubeflow.org/v1/PyTorchJob": f"{_TRAINING} status.elastic",
    "kubeflow.org/v1/TFJob": f"""{_TRAINING} spec.cleanPodPolicy status.tfReplicaStatuses
        status.profile""",
    "kubeflow.org/v1alpha2/TFJob": f"""{_TRAINING} spec.runPolicy spec.successPolicy
        spec.enableDynamicWorker status.replicaStatuses status.tfReplicaStatuses.selector
        status.profile""",
    "kai.alibabacloud.com/v1alpha1/TrainingJob": """spec.elastic spec.suspend status.elastic
        status.observedGeneration status.replicaStatuses.selector status.nextWorkerIndex
        status.replacedWorkers status.observedReplicas""",
    "kai.alibabacloud.com/v1alpha1/ScaleIn": "status.message",
    "kai.alibabacloud.com/v1alpha1/ScaleOut": "status.message",
    "sedna.io/v1alpha1/JointInferenceService": """spec.transport spec.edgeWorker.name
        spec.edgeWorker.nodeName spec.edgeWorker.workerSpec spec.edgeWorker.hardExampleAlgorithm
        spec.edgeWorker.perNode spec.edgeWorker.nodeSelector
        spec.edgeWorker.model.hotUpdate spec.edgeWorker.model.hotUpdateEnabled
        spec.edgeWorker.model.pollPeriodSeconds
        spec.cloudWorker.name spec.cloudWorker.nodeName spec.cloudWorker.workerSpec
        spec.cloudWorker.hardExamples spec.rollout status.rollout
        status.observedGeneration status.conditions.observedGeneration status.phase
        status.edgeNodes status.uploadCount status.fallbacksInARow status.fallbacksSince
        status.answeredBeforeFallbacks status.countedInSlices status.fleet status.workers""",
    "sedna.io/v1alpha1/FederatedLearningJob": """spec.transport spec.suspend
        spec.aggregationWorker.name
        spec.aggregationWorker.nodeName spec.aggregationWorker.workerSpec
        spec.trainingWorkers.name spec.trainingWorkers.nodeName spec.trainingWorkers.workerSpec
        status.observedGeneration status.conditions.observedGeneration status.resultTime
        status.edgeNodes status.finished status.round status.rounds status.metrics status.history
        status.samples status.workers""",
    "sedna.io/v1alpha1/IncrementalLearningJob": """spec.trainSpec.name spec.trainSpec.nodeName
        spec.trainSpec.workerSpec spec.evalSpec.name spec.evalSpec.nodeName spec.evalSpec.workerSpec
        spec.deploySpec.name spec.deploySpec.nodeName spec.deploySpec.workerSpec
        spec.deploySpec.model.hotUpdate spec.deploySpec.publish spec.suspend
        status.observedGeneration status.conditions.observedGeneration status.phase
        status.edgeNodes status.active status.failed status.round status.current status.progress
        status.deployed status.former status.published status.last status.metrics
        status.workers""",
    "sedna.io/v1alpha1/Model": """spec.sha256 status.observedGeneration status.conditions
        status.trainedBy status.digest status.nodes status.readyNodes status.versions
        status.returns status.workers""",
    "sedna.io/v1alpha1/Dataset": "status.observedGeneration status.conditions status.workers",
}
"""Type -> the fields that upstream's type does not have, so that its clients drop them."""
_UNKNOWN: Final = re.compile(r'unknown field "(.*)"')
_PLACE: Final = re.compile(r"\[[0-9]+\]|\.(Worker|Master)\b")


class Collection:
    """The objects of one type in a namespace of the API server."""

    def __init__(self, client: Client, type_: ResourceType, namespace: str) -> None:
        self._client, self._type = client, type_
        self._path = type_.path(namespace)

    def create(self, spec: Any) -> Object:
        return self._client.request("POST", self._path, self._object(spec))

    def try_create(self, spec: Any) -> Object | None:
        """As the API server would store it; None when it refuses it."""
        return self._try("POST", self._path, self._object(spec))

    def try_status(self, object_: Object, status: Any) -> Object | None:
        path = f"{self._path}/{object_['metadata']['name']}/status"
        return self._try("PUT", path, {**object_, "status": status})

    def _object(self, spec: Any) -> Object:
        head = {"apiVersion": self._type.api_version, "kind": self._type.kind}
        return {**head, "metadata": {"generateName": "job-"}, "spec": spec}

    def _try(self, method: str, path: str, body: Object) -> Object | None:
        try:
            return self._client.request(method, f"{path}?dryRun=All", body)
        except ApiError as error:
            if error.code not in (BAD_REQUEST, UNPROCESSABLE_ENTITY):
                raise
            return None


@pytest.fixture(scope="module")
def go_client() -> Iterator[Decoder]:
    try:
        with decoder.running() as running:
            yield running
    except Unavailable as error:
        pytest.skip(str(error))


def schema_of(kind: Kind, type_: ResourceType) -> Object:
    """Of the spec and the status of one version."""
    (version,) = (
        version
        for version in crds.crd(kind, type_)["spec"]["versions"]
        if version["name"] == type_.version
    )
    properties: Object = version["schema"]["openAPIV3Schema"]["properties"]
    return properties


def unknown(answer: Answer) -> set[str]:
    """The paths of the fields that the client's type does not have."""
    return {_PLACE.sub("", found) for text in answer.unknown for found in _UNKNOWN.findall(text)}


@pytest.mark.timeout(300 + OBJECTS)
@pytest.mark.parametrize("part", ["spec", "status"])
@pytest.mark.parametrize(("kind", "type_"), TYPES)
def test_a_go_client_decodes_what_the_api_server_accepts(
    client: Client, namespace: str, go_client: Decoder, kind: Kind, type_: ResourceType, part: str
) -> None:
    """Spec and status apart, because the API server seldom accepts two random values together."""
    schema = schema_of(kind, type_)
    own = set(OWN[f"{type_.api_version}/{type_.kind}"].split())
    accepted = 0

    @SETTINGS
    @given(values(schema[part]))
    def each_object(value: Any) -> None:
        if part == "spec":
            object_ = collection.try_create(value)
        else:
            object_ = collection.try_status(stored, value)
        if not object_:
            reject()
        nonlocal accepted
        accepted += 1
        answer = go_client.decode(object_)
        assert answer.refused == "", object_
        assert unknown(answer) <= own, object_

    with client.persistent() as line:
        collection = Collection(line, type_, namespace)
        specs = values(schema["spec"])
        spec = find(specs, lambda spec: bool(collection.try_create(spec)), settings=FIRST)
        stored = collection.create(spec)
        each_object()
    assert accepted >= OBJECTS
