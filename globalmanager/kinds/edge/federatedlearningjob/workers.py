"""The children of a FederatedLearningJob: Secrets, a Service and the pods of all workers.

The plan of a job has them when the spec is accepted and every object that the spec names exists.
Sedna's library and worker images expect these names and environment variables. edgeai adds
JOB_SECRET, PARTICIPANT_SECRET, FEDERATION_PARTICIPANTS and FEDERATION_STATE_DIR.
"""

from typing import Final

import msgspec

from edgeai.api.federatedlearningjob import FederatedLearningJobSpec
from edgeai.api.resources import PODS, SECRETS, SERVICES
from edgeai.ids import WorkerName
from globalmanager.contract import Create, Observed, UpdateRule
from globalmanager.kinds.edge import references as refs
from globalmanager.kinds.edge import transport
from globalmanager.kinds.edge.federatedlearningjob import spec as types
from globalmanager.kinds.edge.federatedlearningjob import worker_secrets
from globalmanager.kinds.edge.federatedlearningjob.spec import AGGREGATION, TRAIN, worker_name
from globalmanager.kinds.edge.federatedlearningjob.worker_secrets import (
    JOB_SECRET,
    PARTICIPANT_SECRET,
    PARTICIPANTS,
    Layout,
    Place,
    place,
)
from globalmanager.kinds.edge.worker_form import build
from globalmanager.kinds.shared import children, storage
from globalmanager.kinds.shared.pods import (
    WORKER_SECRET,
    EnvVar,
    field,
    from_secret,
    literal,
    worker_api,
)
from globalmanager.kinds.shared.replication import replica_names

# Sedna's port of the aggregator.
PORT: Final = 7363
OWNS: Final = {
    SECRETS: UpdateRule.REPLACE,
    SERVICES: UpdateRule.REPLACE,
    PODS: UpdateRule.RECREATE,
}
_PARTICIPANTS_VOLUME: Final = "edgeai-participants"
_PARTICIPANTS_DIRECTORY: Final = "/etc/edgeai-federation"
_STATE_VOLUME: Final = "edgeai-federation"
_STATE_DIRECTORY: Final = "/var/lib/edgeai-federation"


def desired(observed: Observed, spec: FederatedLearningJobSpec) -> tuple[Create, ...]:
    """The children in the order of creation: the trainers come last, after what they need."""
    service = children.service(
        observed, name=worker_name(observed.ref.name, None), role=AGGREGATION, ports={"tcp": PORT}
    )
    # Most jobs have no Secret of an earlier release, and only one set of templates to make.
    separate = pods(observed, spec, Layout.SEPARATE)
    if worker_secrets.joint_secret(observed) not in observed.children:
        return (*worker_secrets.desired(observed, spec), service, *separate)
    joint = pods(observed, spec, Layout.JOINT)
    users = worker_secrets.joint_users(observed, separate)
    # A pod of an earlier release stays with the joint Secret: an upgrade restarts no worker.
    mixed = [
        old if children.is_current(observed, old) else new
        for old, new in zip(joint, separate, strict=True)
    ]
    return (*worker_secrets.desired(observed, spec, users), service, *mixed)


def pods(observed: Observed, spec: FederatedLearningJobSpec, layout: Layout) -> list[Create]:
    """The pods of all workers, with the secrets where `layout` has them."""
    indices = range(len(spec.training_workers))
    trainers = (_trainer(observed, spec, index, layout) for index in indices)
    return [_aggregator(observed, spec, layout), *trainers]


def _aggregator(observed: Observed, spec: FederatedLearningJobSpec, layout: Layout) -> Create:
    name = worker_name(observed.ref.name, None)
    result = refs.model_source(observed, spec.aggregation_worker.model.name, env="MODEL_URL")
    state = _state(observed, result.url)
    file = _participants(place(observed, PARTICIPANTS, None, layout))
    data = storage.place(
        # The aggregator writes the result, so its directory is writable, and made if missing.
        [msgspec.structs.replace(result, is_output=True), *_pretrained(observed, spec)],
        observed.settings,
    )
    template = build(
        observed,
        spec.aggregation_worker,
        role=AGGREGATION,
        env=[
            *_common_env(observed, spec, name),
            # without this variable Sedna's library guesses an address
            field("AGG_BIND_IP", "status.podIP"),
            literal("AGG_BIND_PORT", str(PORT)),
            from_secret(JOB_SECRET, *place(observed, JOB_SECRET, None, layout)),
        ],
        data=storage.joined(data, state, file),
        name=name,
        # A worker that succeeds is done. After a crash its node starts it again in the same pod.
        restart_policy="OnFailure",
    )
    return children.pod(observed, name=name, role=AGGREGATION, template=template)


def _participants(file: Place) -> storage.Placement:
    """The file of who may take part. Kubernetes updates it while the aggregator runs."""
    items = [{"key": file.key, "path": file.key}]
    source = {"secretName": file.secret, "items": items}
    mount = {"name": _PARTICIPANTS_VOLUME, "mountPath": _PARTICIPANTS_DIRECTORY, "readOnly": True}
    path = f"{_PARTICIPANTS_DIRECTORY}/{file.key}"
    return storage.Placement(
        env=(literal("FEDERATION_PARTICIPANTS", path),),
        volumes=({"name": _PARTICIPANTS_VOLUME, "secret": source},),
        mounts=(mount,),
    )


def _state(observed: Observed, model_url: str) -> storage.Placement:
    """The directory where the aggregator keeps its rounds. For a model on a node, the directory is
    beside the model, so the rounds outlive the pod. For a model in a bucket, the directory is in
    the pod.
    """
    env = "FEDERATION_STATE_DIR"
    # The uid keeps the rounds of two jobs with one Model apart, and those of a job made again.
    if model_url.startswith("/"):
        path = storage.HOST_DATA + storage.mounted(model_url)
        return storage.Placement(env=(literal(env, f"{path}/.edgeai-{observed.uid}"),))
    return storage.Placement(
        env=(literal(env, f"{_STATE_DIRECTORY}/rounds"),),
        # An emptyDir outlives the container, so a crash of the aggregator loses no round.
        volumes=({"name": _STATE_VOLUME, "emptyDir": {}},),
        mounts=({"name": _STATE_VOLUME, "mountPath": _STATE_DIRECTORY},),
    )


def _trainer(
    observed: Observed, spec: FederatedLearningJobSpec, index: int, layout: Layout
) -> Create:
    form = spec.training_workers[index]
    name = worker_name(observed.ref.name, index)
    dataset = refs.dataset_source(observed, form.dataset.name, env="TRAIN_DATASET_URL")
    result = refs.model_source(observed, spec.aggregation_worker.model.name, env="MODEL_URL")
    # Each trainer saves the result, too, on its own node.
    sources = [dataset, msgspec.structs.replace(result, is_output=True)]
    template = build(
        observed,
        # The node stands in the pod, so a scheduler cannot move the trainer away from its data.
        msgspec.structs.replace(form, node_name=types.node_of(observed, form)),
        role=TRAIN,
        env=[
            *_common_env(observed, spec, name),
            # The DNS name, as in Sedna: a Service that is made again has another address.
            literal("AGG_IP", f"{worker_name(observed.ref.name, None)}.{observed.ref.namespace}"),
            literal("AGG_PORT", str(PORT)),
            literal("DATASET_NAME", form.dataset.name),
            literal("MODEL_NAME", spec.aggregation_worker.model.name),
            from_secret(PARTICIPANT_SECRET, *place(observed, PARTICIPANT_SECRET, index, layout)),
            # HOST_IP, WORKER_NAME and WORKER_SECRET come before the proxy that refers to them:
            # Kubernetes expands only variables that precede.
            *worker_api(observed.settings, *place(observed, WORKER_SECRET, index, layout)),
            *transport.environment(
                spec.transport, observed.settings, beside=_bucket_urls(observed, spec)
            ),
        ],
        data=storage.place([*sources, *_pretrained(observed, spec)], observed.settings),
        name=name,
        restart_policy="OnFailure",
        is_edge=True,
    )
    pod = children.pod(observed, name=name, role=TRAIN, template=template)
    return children.without_token(pod)


def _pretrained(observed: Observed, spec: FederatedLearningJobSpec) -> list[storage.Source]:
    if spec.pretrained_model is None:
        return []
    return [refs.model_source(observed, spec.pretrained_model.name, env="PRETRAINED_MODEL_URL")]


def _common_env(
    observed: Observed, spec: FederatedLearningJobSpec, worker: WorkerName
) -> list[EnvVar]:
    ref = observed.ref
    return [
        literal("NAMESPACE", ref.namespace),
        literal("JOB_NAME", ref.name),
        literal("WORKER_NAME", worker),
        # Every pod knows the number, so one more trainer replaces all of them.
        literal("PARTICIPANTS_COUNT", str(len(spec.training_workers))),
        *_transmitter_env(observed, spec),
    ]


def _transmitter_env(observed: Observed, spec: FederatedLearningJobSpec) -> list[EnvVar]:
    s3 = spec.transmitter.s3 if spec.transmitter else None
    if s3 is None:
        return [literal("TRANSMITTER", "ws")]
    endpoint = refs.bucket_endpoint(observed, s3.credential_name)
    credentials = storage.credentials(s3.credential_name, endpoint)
    return [literal("TRANSMITTER", "s3"), literal("AGG_DATA_PATH", s3.agg_data_path), *credentials]


def _bucket_urls(observed: Observed, spec: FederatedLearningJobSpec) -> list[str]:
    """Where the workers find the bucket of the transmitter, if the Secret says so."""
    s3 = spec.transmitter.s3 if spec.transmitter else None
    return [] if s3 is None else [refs.bucket_endpoint(observed, s3.credential_name)]


def names(spec: FederatedLearningJobSpec, job: str) -> list[WorkerName]:
    return [worker_name(job, None), *replica_names(job, TRAIN, len(spec.training_workers))]
