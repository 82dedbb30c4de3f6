"""The children of an IncrementalLearningJob: Secrets, the inference worker, the pod of the stage.

Sedna's library and worker images expect these environment variables. The inference worker gets a
new model by a new pod, or with hotUpdate by a file that changes while it runs.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from edgeai.api.incrementallearningjob import IncrementalLearningJobSpec, Round, Stage
from edgeai.api.pod_state import phase_of
from edgeai.api.resources import CONFIG_MAPS, DEPLOYMENTS, PODS, SECRETS, Object, ObjectRef
from edgeai.api.status import Truth, condition_of, count_of, mapping, worker_entries
from edgeai.api.workers import WorkerForm
from globalmanager.contract import Create, Observed, UpdateRule
from globalmanager.kinds.edge import grants, mining, suspension
from globalmanager.kinds.edge import references as refs
from globalmanager.kinds.edge.incrementallearningjob import inputs
from globalmanager.kinds.edge.incrementallearningjob import spec as types
from globalmanager.kinds.edge.incrementallearningjob.spec import (
    EVAL,
    INFERENCE,
    ROLES,
    TRAIN,
    worker_name,
)
from globalmanager.kinds.edge.incrementallearningjob.state import State
from globalmanager.kinds.edge.worker_form import build, given_template
from globalmanager.kinds.shared import children, objects, status, storage
from globalmanager.kinds.shared.lifecycle import own_pods, pause_left_s
from globalmanager.kinds.shared.pods import WORKER_SECRET, EnvVar, literal, worker_api

OWNS: Final = {
    SECRETS: UpdateRule.REPLACE,
    CONFIG_MAPS: UpdateRule.REPLACE,
    DEPLOYMENTS: UpdateRule.REPLACE,
    # Of the pods, `kept` exempts those that have started: they go on after an edit.
    PODS: UpdateRule.RECREATE,
}
RETRY_S: Final = 10.0
"""Seconds until the second attempt of a stage, and twice as many until the third one."""
UPDATED_S: Final = 60.0
"""Seconds within which a kubelet updates a file of a ConfigMap in a pod."""
_MODEL_FILE: Final = "model.json"
_MODEL_VOLUME: Final = "edgeai-model"
_MODEL_DIRECTORY: Final = "/edgeai-model"
_ROUNDS_VOLUME: Final = "edgeai-rounds"


def desired(
    observed: Observed, spec: IncrementalLearningJobSpec, state: State, now: datetime
) -> tuple[Create, ...]:
    """The children in the order of creation."""
    # Each worker has one of its own, as each may have a node of its own.
    secrets = (grants.secret(observed, worker_name(observed, role), role) for role in ROLES)
    hot = [_model_file(observed, spec, state)] if spec.deploy_spec.model.is_hot else []
    inference = _inference(observed, spec, state)
    current = state.current
    is_due = current is not None and retry_left_s(current, now) <= 0 and not current.succeeded
    is_due = is_due and not suspension.is_suspended(observed)
    has_pod = current is not None and is_due and current.stage is not Stage.DEPLOY
    stage_pods = [_pod(observed, spec, current, state)] if current and has_pod else []
    return (*secrets, *hot, inference, *stage_pods)


def retry_left_s(current: Round, now: datetime) -> float:
    """Seconds until the pod of the attempt may be made."""
    if not current.attempt:
        return 0.0
    return pause_left_s(current.since, RETRY_S * 2 ** (current.attempt - 1), now)


def kept(observed: Observed, state: State) -> list[ObjectRef]:
    """The pods of the last round that began. They stay, with their logs, until the next round. Of
    the present stage, and of one that has failed, only those that have started do.
    """
    current, last = state.current, state.last
    is_suspended = suspension.is_suspended(observed)
    is_open = last is not None and last.reason.endswith(("Failed", "Outdated"))
    stage = current.stage if current else last.stage if last and is_open else None
    kept = []
    for pod in own_pods(observed):
        name, phase = pod["metadata"]["name"], phase_of(pod)
        is_running = current and phase != "Pending" and not is_suspended
        is_started = phase in ("Succeeded", "Failed") or is_running
        for role in (TRAIN, EVAL):
            is_of_round = name.startswith(f"{worker_name(observed, role)}-{state.round}-")
            if is_of_round and (is_started or role != str(stage).lower()):
                kept.append(ObjectRef(PODS, observed.ref.namespace, name))
    return kept


def pod_of(observed: Observed, current: Round) -> Object | None:
    ref = ObjectRef(PODS, observed.ref.namespace, pod_name(observed, current))
    return observed.children.get(ref)


def pod_name(observed: Observed, current: Round) -> str:
    worker = worker_name(observed, current.stage.lower())
    return f"{worker}-{current.number}-{current.attempt}"


def _env(observed: Observed, role: str) -> list[EnvVar]:
    name = worker_name(observed, role)
    return [
        literal("NAMESPACE", observed.ref.namespace),
        literal("JOB_NAME", observed.ref.name),
        literal("WORKER_NAME", name),
        *worker_api(observed.settings, name, WORKER_SECRET),
    ]


# ---- train and eval -----------------------------------------------------------------------------


def _pod(
    observed: Observed, spec: IncrementalLearningJobSpec, current: Round, state: State
) -> Create:
    is_training = current.stage is Stage.TRAIN
    form: WorkerForm = spec.train_spec if is_training else spec.eval_spec
    role = TRAIN if is_training else EVAL
    sources = _sources(observed, spec, current, state)
    urls = ";".join(storage.path_in_pod(source.url) for source in sources[1:])
    data = inputs.with_samples(
        storage.place(sources, observed.settings),
        given_template(form, observed.settings)["spec"]["containers"][0]["image"],
        current,
    )
    template = build(
        observed,
        # The node stands in the pod: the models of a round are on the node where it began.
        msgspec.structs.replace(form, node_name=current.node),
        role=role,
        env=[*_env(observed, role), *([] if is_training else [literal("MODEL_URLS", urls)])],
        data=data,
        name=worker_name(observed, role),
        # A container that fails is an attempt. With another policy it would fail for ever.
        restart_policy="Never",
        is_edge=True,
    )
    name = pod_name(observed, current)
    return children.without_token(children.pod(observed, name=name, role=role, template=template))


def _sources(
    observed: Observed, spec: IncrementalLearningJobSpec, current: Round, state: State
) -> list[storage.Source]:
    """The data, and then what the stage reads and writes: base model and directory of the result,
    or the new model and the deployed one.
    """
    data = refs.dataset_source(observed, spec.dataset.name, env="ORIGINAL_DATASET_URL")
    data = msgspec.structs.replace(data, url=current.url)
    if current.stage is Stage.TRAIN:
        base = _source(observed, spec, current.base, "BASE_MODEL_URL")
        result = _source(observed, spec, current.directory, "MODEL_URL")
        return [data, base, msgspec.structs.replace(result, is_output=True)]
    # Both in the format of the inference worker.
    new = types.of_format(current.models, types.model_format(observed, spec.deploy_spec.model.name))
    initial = spec.eval_spec.initial_eval_model or spec.deploy_spec.model
    former = deployed_url(spec, state) or refs.model_source(observed, initial.name, env="").url
    return [
        data,
        _source(observed, spec, new, "TRAINED_MODEL_URL"),
        _source(observed, spec, former, "DEPLOYED_MODEL_URL"),
    ]


def _source(
    observed: Observed, spec: IncrementalLearningJobSpec, url: str, env: str
) -> storage.Source:
    """A model of a round, with the keys of outputDir, or one of the Models, with its own."""
    for name, _ in types.models(spec):
        model = refs.model_source(observed, name, env=env)
        if model.url == url:
            return model
    secret = spec.credential_name
    endpoint = refs.bucket_endpoint(observed, secret) if secret else ""
    return storage.Source(env=env, url=url, credential=secret, endpoint=endpoint)


# ---- inference ----------------------------------------------------------------------------------


def deployed_url(spec: IncrementalLearningJobSpec, state: State) -> str:
    """URL of the model that was deployed; "" before, and for another Model than then."""
    deployed = state.deployed
    return deployed.url if deployed and deployed.model == spec.deploy_spec.model.name else ""


def urls(spec: IncrementalLearningJobSpec, state: State) -> list[str]:
    """The data and models that workers get by this state."""
    current, deployed = state.current, deployed_url(spec, state)
    places = [current.url, current.directory, current.base] if current else []
    models = [model.url for model in current.models] if current else []
    return [*places, *models, *([deployed] if deployed else [])]


def _inference(observed: Observed, spec: IncrementalLearningJobSpec, state: State) -> Create:
    form = spec.deploy_spec
    model = refs.model_source(observed, form.model.name, env="MODEL_URL")
    url = deployed_url(spec, state)
    env = [*_env(observed, INFERENCE), *mining.environment(form.hard_example_mining)]
    if form.model.is_hot:
        data = storage.joined(
            storage.place([model], observed.settings), _model_mount(observed, spec, state)
        )
        env += [
            literal("MODEL_HOT_UPDATE", "True"),
            literal("MODEL_HOT_UPDATE_CONFIG", f"{_MODEL_DIRECTORY}/{_MODEL_FILE}"),
            literal("MODEL_POLL_PERIOD_SECONDS", str(form.model.poll_period_seconds)),
        ]
    else:
        source = _source(observed, spec, url, "MODEL_URL") if url else model
        data = storage.place([source], observed.settings)
    template = build(
        observed,
        msgspec.structs.replace(form, node_name=types.node_of(observed, spec, INFERENCE)),
        role=INFERENCE,
        env=env,
        data=data,
        name=worker_name(observed, INFERENCE),
        is_edge=True,
    )
    deployment = children.deployment(
        observed,
        name=worker_name(observed, INFERENCE),
        role=INFERENCE,
        template=template,
        autoscaled=False,
    )
    return children.without_token(deployment)


def _rounds_directory(observed: Observed, spec: IncrementalLearningJobSpec, state: State) -> str:
    """The directory of the rounds, one of which has trained the deployed model."""
    url = deployed_url(spec, state)
    if not url:
        return types.directory(observed, spec)
    # Somebody may have edited outputDir since.
    parent, name, _ = url.partition(f"/{types.job_directory(observed)}/")
    return parent + name.rstrip("/")


def _model_mount(
    observed: Observed, spec: IncrementalLearningJobSpec, state: State
) -> storage.Placement:
    """The file that names the model, and on the node the models of all rounds."""
    file = {"name": _MODEL_VOLUME, "configMap": {"name": _file_name(observed)}}
    mount = {"name": _MODEL_VOLUME, "mountPath": _MODEL_DIRECTORY, "readOnly": True}
    directory = _rounds_directory(observed, spec, state)
    if not types.is_path(directory):
        secret = spec.credential_name
        keys = storage.credentials(secret, refs.bucket_endpoint(observed, secret))
        return storage.Placement(env=keys, volumes=(file,), mounts=(mount,))
    path = storage.HOST_DATA + directory
    return storage.Placement(
        env=(literal("MODEL_DIRECTORY", path),),
        volumes=(file, storage.host_directory(_ROUNDS_VOLUME, directory, make=True)),
        mounts=(mount, {"name": _ROUNDS_VOLUME, "mountPath": path, "readOnly": True}),
    )


def _file_name(observed: Observed) -> str:
    return f"{observed.ref.name}-model"


def _model_file(observed: Observed, spec: IncrementalLearningJobSpec, state: State) -> Create:
    """The file that Sedna's library reads to find a new model."""
    url = deployed_url(spec, state)
    model = refs.model_source(observed, spec.deploy_spec.model.name, env="").url
    path = storage.path_in_pod(url or model) if types.is_path(url) else url
    version = str(state.deployed.round) if url and state.deployed else "0"
    # The library names a file by the time, and compares it with the one before.
    config: dict[str, Any] = {"model_config": {"model_path": path, "model_update_time": version}}
    # The SDK knows both directories by variables, so a node may have them at other places.
    config["model"] = url.removeprefix(f"{_rounds_directory(observed, spec, state)}/")
    content = {"data": {_MODEL_FILE: json.dumps(config)}}
    return objects.child(
        observed, CONFIG_MAPS, name=_file_name(observed), role=INFERENCE, content=content
    )


def has_deployed(
    observed: Observed,
    spec: IncrementalLearningJobSpec,
    state: State,
    current: Round,
    now: datetime,
) -> bool:
    deployment = _inference(observed, spec, state)
    if not children.is_current(observed, deployment) or not _is_rolled_out(observed):
        return False
    if not spec.deploy_spec.model.is_hot:
        return True
    if not children.is_current(observed, _model_file(observed, spec, state)):
        return False
    version = mapping(_inference_entry(observed).get("details")).get("modelVersion")
    if version is not None:
        return str(version) == str(current.number)
    update = update_of(observed, current)
    is_over = pause_left_s(current.since, updated_s(spec), now) <= 0
    return update == "completed" or (is_over and not update)


def last_report(observed: Observed) -> int:
    """The number of the inference worker's last report that may be the end of a hot update."""
    return count_of(_inference_entry(observed).get("attempt"))


def update_of(observed: Observed, current: Round) -> str:
    """How the worker says that it has loaded the model: completed (Sedna's library) or failed;
    "": not yet.
    """
    entry = _inference_entry(observed)
    fault = mapping(entry.get("details")).get("modelFault")  # of the SDK
    if str(fault).startswith(f"version {current.number}:"):
        return "failed"
    # Without the number before, an end may be that of an earlier model.
    before = current.last_report
    if before is msgspec.UNSET or entry.get("phase") != "deploy":
        return ""
    return str(entry.get("status")) if last_report(observed) > before else ""


def _inference_entry(observed: Observed) -> Mapping[str, Any]:
    return worker_entries(status.status_of(observed)).get(worker_name(observed, INFERENCE), {})


def updated_s(spec: IncrementalLearningJobSpec) -> float:
    """Seconds within which a worker that reads the file has looked at it. One that tells no version
    of its model then has the new one, as with Sedna's library, whose report does not say which.
    """
    model = spec.deploy_spec.model
    return UPDATED_S + 2 * model.poll_period_seconds if model.is_hot else 0.0


def _is_rolled_out(observed: Observed) -> bool:
    ref = ObjectRef(DEPLOYMENTS, observed.ref.namespace, worker_name(observed, INFERENCE))
    deployment = observed.children.get(ref, {"metadata": {}})
    state, generation = mapping(deployment.get("status")), deployment["metadata"].get("generation")
    # Before the controller has seen the new template, the pods of the old one count as available.
    return (
        state.get("observedGeneration") == generation
        and state.get("updatedReplicas", 0) == state.get("replicas", 0) != 0
        and condition_of(deployment, "Available").get("status") == Truth.TRUE
    )
