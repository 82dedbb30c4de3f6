"""The children of a FederatedLearningJob: a Secret, a Service and the pods of all workers.

Called by `main` when the spec is accepted and every object that the spec names exists. Sedna's
library and worker images expect these names and environment variables. edgeai adds JOB_SECRET,
PARTICIPANT_SECRET, FEDERATION_PARTICIPANTS and FEDERATION_STATE_DIR.

The aggregator has the secret of the job. Each trainer has a secret that the aggregator derives from
the secret of the job and the trainer's name. So no trainer can speak for another.
"""

from typing import Final

import msgspec

from common.ids import WorkerName
from common.participants import participant_secret
from globalmanager.contract import PODS, SECRETS, SERVICES, Create, Observed, UpdateRule
from globalmanager.kinds.federatedlearningjob import types
from globalmanager.kinds.federatedlearningjob.types import (
    AGGREGATION,
    TRAIN,
    FederatedLearningJobSpec,
    TrainingWorker,
)
from globalmanager.rules import children, storage, transport
from globalmanager.rules import references as refs
from globalmanager.rules.pods import EnvVar, field, from_secret, literal, worker_api
from globalmanager.rules.replication import replica_name, replica_names
from globalmanager.rules.secrets import worker_secret
from globalmanager.rules.worker_form import WorkerPod, build

PORT: Final = 7363
OWNS: Final = {
    SECRETS: UpdateRule.REPLACE,
    SERVICES: UpdateRule.REPLACE,
    PODS: UpdateRule.RECREATE,
}
_JOB: Final = "job"  # role of the secret of the job, which the aggregator has, and its key
_PARTICIPANTS: Final = "participants.json"
_PARTICIPANTS_VOLUME: Final = "edgeai-participants"
_PARTICIPANTS_DIRECTORY: Final = "/etc/edgeai-federation"
_STATE_VOLUME: Final = "edgeai-federation"
_STATE_DIRECTORY: Final = "/var/lib/edgeai-federation"


def aggregator_name(job: str) -> WorkerName:
    return WorkerName(f"{job}-{AGGREGATION}")


def trainer_name(job: str, index: int) -> WorkerName:
    return replica_name(job, TRAIN, index)


def secret_name(job: str) -> str:
    return f"{job}-federation"


def trainer_role(index: int) -> str:
    """The role from which edgeai derives a trainer's secret. Each trainer has a secret of its
    own.
    """
    return f"{TRAIN}-{index}"


def desired(observed: Observed, spec: FederatedLearningJobSpec) -> tuple[Create, ...]:
    """The children in the order of creation: the Secret, the Service and the aggregator before the
    trainers.
    """
    name = observed.ref.name
    service = children.service(
        observed, name=aggregator_name(name), role=AGGREGATION, ports={"tcp": PORT}
    )
    trainers = (_trainer(observed, spec, index) for index in range(len(spec.training_workers)))
    return (_secret(observed, spec), service, _aggregator(observed, spec), *trainers)


def _secret(observed: Observed, spec: FederatedLearningJobSpec) -> Create:
    """The secrets of the job and of each trainer, and who may take part."""
    indices = range(len(spec.training_workers))
    key, uid, job = observed.settings.root_key, observed.uid, observed.ref.name
    secret = worker_secret(key, uid, _JOB)
    values = {
        _JOB: secret,
        **{trainer_role(index): worker_secret(key, uid, trainer_role(index)) for index in indices},
        **{
            _participant(index): participant_secret(secret, trainer_name(job, index))
            for index in indices
        },
        _PARTICIPANTS: _limits(observed, spec),
    }
    return children.secret(observed, name=secret_name(job), role=TRAIN, values=values)


def _participant(index: int) -> str:
    """The key of the secret by which the trainer takes part."""
    return f"participant-{index}"


def _limits(observed: Observed, spec: FederatedLearningJobSpec) -> str:
    """Trainer -> the number of samples in its Dataset, in JSON; null where it is not known."""
    limits = {
        trainer_name(observed.ref.name, index): refs.dataset_samples(observed, worker.dataset.name)
        for index, worker in enumerate(spec.training_workers)
    }
    return msgspec.json.encode(limits).decode()


def _aggregator(observed: Observed, spec: FederatedLearningJobSpec) -> Create:
    name = aggregator_name(observed.ref.name)
    result = refs.model_source(observed, spec.aggregation_worker.model.name, env="MODEL_URL")
    state = _state(observed, result.url)
    data = storage.place(
        [msgspec.structs.replace(result, is_output=True), *_pretrained(observed, spec)],
        observed.settings,
    )
    worker = WorkerPod(
        role=AGGREGATION,
        form=spec.aggregation_worker,
        env=[
            *_common_env(observed, spec, name),
            # without this variable Sedna's library guesses an address
            field("AGG_BIND_IP", "status.podIP"),
            literal("AGG_BIND_PORT", str(PORT)),
            from_secret("JOB_SECRET", secret_name(observed.ref.name), _JOB),
        ],
        data=storage.joined(data, state, _participants(observed)),
        name=name,
        restart_policy="OnFailure",
    )
    return children.pod(observed, name=name, role=AGGREGATION, template=build(observed, worker))


def _participants(observed: Observed) -> storage.Placement:
    """The file that says who may take part. Kubernetes updates the file while the aggregator
    runs.
    """
    items = [{"key": _PARTICIPANTS, "path": _PARTICIPANTS}]
    source = {"secretName": secret_name(observed.ref.name), "items": items}
    mount = {"name": _PARTICIPANTS_VOLUME, "mountPath": _PARTICIPANTS_DIRECTORY, "readOnly": True}
    path = f"{_PARTICIPANTS_DIRECTORY}/{_PARTICIPANTS}"
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
    if model_url.startswith("/"):
        path = storage.HOST_DATA + storage.mounted(model_url)
        return storage.Placement(env=(literal(env, f"{path}/.edgeai-{observed.uid}"),))
    return storage.Placement(
        env=(literal(env, f"{_STATE_DIRECTORY}/rounds"),),
        volumes=({"name": _STATE_VOLUME, "emptyDir": {}},),
        mounts=({"name": _STATE_VOLUME, "mountPath": _STATE_DIRECTORY},),
    )


def _trainer(observed: Observed, spec: FederatedLearningJobSpec, index: int) -> Create:
    given = spec.training_workers[index]
    name = trainer_name(observed.ref.name, index)
    dataset = refs.dataset_source(observed, given.dataset.name, env="TRAIN_DATASET_URL")
    result = refs.model_source(observed, spec.aggregation_worker.model.name, env="MODEL_URL")
    sources = [dataset, msgspec.structs.replace(result, is_output=True)]
    worker = WorkerPod(
        role=TRAIN,
        form=_placed(observed, given),
        env=[
            *_common_env(observed, spec, name),
            literal("AGG_IP", f"{aggregator_name(observed.ref.name)}.{observed.ref.namespace}"),
            literal("AGG_PORT", str(PORT)),
            literal("DATASET_NAME", given.dataset.name),
            literal("MODEL_NAME", spec.aggregation_worker.model.name),
            from_secret("PARTICIPANT_SECRET", secret_name(observed.ref.name), _participant(index)),
            *worker_api(observed.settings, secret_name(observed.ref.name), trainer_role(index)),
            *transport.environment(
                spec.transport, observed.settings, beside=_bucket_urls(observed, spec)
            ),
        ],
        data=storage.place([*sources, *_pretrained(observed, spec)], observed.settings),
        name=name,
        restart_policy="OnFailure",
        is_edge=True,
    )
    pod = children.pod(observed, name=name, role=TRAIN, template=build(observed, worker))
    return children.without_token(pod)


def _placed(observed: Observed, given: TrainingWorker) -> TrainingWorker:
    return msgspec.structs.replace(given, node_name=types.node_of(observed, given))


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
    """The names of the pods of all workers."""
    return [aggregator_name(job), *replica_names(job, TRAIN, len(spec.training_workers))]
