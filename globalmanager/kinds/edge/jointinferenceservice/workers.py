"""The children of a JointInferenceService: a Secret, a Service, two Deployments and autoscalers.

A plan has them when the spec is accepted and every object that the spec names exists. Sedna's
library and worker images expect these names and environment variables.
"""

from typing import Final

import msgspec

from edgeai.api import slices
from edgeai.api.jointinferenceservice import (
    CloudWorker,
    EdgeWorker,
    JointInferenceServiceSpec,
)
from edgeai.api.resources import (
    AUTOSCALERS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    PODS,
    SECRETS,
    SERVICES,
    Object,
)
from edgeai.api.status import mapping
from edgeai.ids import WorkerName
from globalmanager.contract import Create, Observed, UpdateRule
from globalmanager.kinds.edge import grants, mining, transport
from globalmanager.kinds.edge import references as refs
from globalmanager.kinds.edge.jointinferenceservice.spec import CLOUD, EDGE, FLEET, workers
from globalmanager.kinds.edge.worker_form import build, fixed_node, set_by_user
from globalmanager.kinds.shared import children, objects, pods, sedna, storage
from globalmanager.kinds.shared.pods import EnvVar, field, literal, worker_api

# Sedna's port of the big model.
PORT: Final = 5000
# Each change is made in place: Kubernetes rolls the pods, and the service goes on meanwhile.
OWNS: Final = {
    SECRETS: UpdateRule.REPLACE,
    SERVICES: UpdateRule.REPLACE,
    DEPLOYMENTS: UpdateRule.REPLACE,
    # of a fleet, see `fleet`
    PODS: UpdateRule.RECREATE,
    AUTOSCALERS: UpdateRule.REPLACE,
    CONFIG_MAPS: UpdateRule.REPLACE,
}
HOT_MODEL: Final = "HOT_MODEL"  # no common name: a template may have a MODEL_NAME of its own
_SET_BY_EDGEAI: Final = ("LC_SERVER", "WORKER_NAME", HOT_MODEL, pods.WORKER_SECRET)
"""Environment variables that edgeai sets. Without edgeai's values, the reports of an edge worker do
not reach .status."""


def deployment_name(service: str, role: str) -> str:
    return f"{service}-deployment-{role}"


def worker_name(service: str, role: str, node: str = "") -> WorkerName:
    """With the node when Kubernetes chooses it."""
    # Kubernetes may run such a worker on several nodes, and counts of two workers under one name
    # would overwrite each other.
    return WorkerName(f"{service}-{role}-{node}" if node else f"{service}-{role}")


def service_name(service: str) -> str:
    return f"{service}-{CLOUD}"


def secret_name(service: str) -> str:
    return f"{service}-{EDGE}"


def hints(observed: Observed, spec: JointInferenceServiceSpec) -> str:
    """Warnings about fields that are valid, but have no effect or are probably a mistake. "" when
    there is no warning.
    """
    sentences = [mining.unknown_parameters(spec.edge_worker.mining)]
    for role, worker in workers(spec):
        # A hint and no error: the service works without its autoscaler.
        if worker.hpa and AUTOSCALERS in observed.absent:
            sentences.append(
                f"{role}Worker.hpa has no effect: the API server does not serve "
                f"{AUTOSCALERS.api_version}, which Kubernetes 1.23 and newer have"
            )
    name = spec.edge_worker.model.name
    model = observed.references.get(refs.model_ref(observed, name))
    if spec.rollout and model and not mapping(model.get("spec")).get("sha256"):
        sentences.append(
            "without spec.sha256 of the Model, rollout takes back its URL, and each node gets what "
            "the URL has then"
        )
    if spec.edge_worker.model.is_hot and observed.type.group == sedna.GROUP:
        sentences.append(
            "edgeWorker.model.hotUpdate needs a worker with edgeai.worker: Sedna's library finds no"
            " model then"
        )
    for name in set_by_user(spec.edge_worker, _SET_BY_EDGEAI):
        sentences.append(
            f"edgeWorker.template sets {name}, and that is kept: reports of this worker reach"
            " .status only with the value that edgeai would set; remove it from the template"
        )
    return "; ".join(filter(None, sentences))


def desired(observed: Observed, spec: JointInferenceServiceSpec) -> tuple[Create, ...]:
    """The children in the order of creation: the Secret and the Service before the workers that
    use them.
    """
    name = observed.ref.name
    secret = grants.secret(observed, secret_name(name), EDGE)
    service = children.service(observed, name=service_name(name), role=CLOUD, ports={"tcp": PORT})
    cloud = _deployment(observed, CLOUD, spec.cloud_worker, _cloud_template(observed, spec))
    edges = []
    if not spec.edge_worker.per_node:
        edge = _deployment(observed, EDGE, spec.edge_worker, _edge_template(observed, spec))
        # Only at the edge a node boots without the cloud.
        edges.append(children.without_token(edge))
    autoscalers = (
        children.autoscaler(
            observed,
            deployment=deployment_name(name, role),
            role=role,
            limits=msgspec.to_builtins(worker.hpa),
        )
        for role, worker in workers(spec)
        # In Sedna the autoscaler failed before the edge worker was made. Here the workers come
        # first.
        if worker.hpa and AUTOSCALERS not in observed.absent
    )
    return (*_slices(observed, spec), secret, service, cloud, *edges, *autoscalers)


def _slices(observed: Observed, spec: JointInferenceServiceSpec) -> list[Create]:
    """The slices of a fleet. They stay when the service is no fleet any more, because they have the
    counts of the workers of its nodes.
    """
    exist = any(ref.type == CONFIG_MAPS for ref in observed.children)
    names = slices.slice_names(observed.ref.name) if exist or spec.edge_worker.per_node else []
    return [
        objects.child(observed, CONFIG_MAPS, name=name, role=slices.ROLE, content={})
        for name in names
    ]


def fleet_template(observed: Observed, spec: JointInferenceServiceSpec) -> Object:
    template = _edge_template(observed, spec)
    tolerations = pods.with_edge_tolerations(template["spec"].get("tolerations") or [])
    return {**template, "spec": {**template["spec"], "tolerations": tolerations}}


def _deployment(
    observed: Observed, role: str, form: EdgeWorker | CloudWorker, template: Object
) -> Create:
    return children.deployment(
        observed,
        name=deployment_name(observed.ref.name, role),
        role=role,
        template=template,
        autoscaled=form.hpa is not None,
    )


def _edge_template(observed: Observed, spec: JointInferenceServiceSpec) -> Object:
    form = spec.edge_worker
    if form.model.is_hot:
        data = storage.scratch()
    else:
        model = refs.model_source(observed, form.model.name, env="MODEL_URL")
        data = storage.place([model], observed.settings)
    return build(
        observed,
        form,
        role=EDGE,
        env=_edge_env(observed, spec),
        data=data,
        name=worker_name(observed.ref.name, EDGE) if fixed_node(form) else None,
        is_edge=True,
    )


def _cloud_template(observed: Observed, spec: JointInferenceServiceSpec) -> Object:
    form = spec.cloud_worker
    sources = [refs.model_source(observed, form.model.name, env="MODEL_URL")]
    if form.hard_examples:
        name = form.hard_examples.dataset
        examples = refs.dataset_source(observed, name, env="HARD_EXAMPLES_PATH")
        sources.append(msgspec.structs.replace(examples, is_output=True))
    return build(
        observed,
        form,
        role=CLOUD,
        env=_cloud_env(observed, form),
        data=storage.place(sources, observed.settings),
        # Cloud workers do not report, so their name needs no node.
        name=worker_name(observed.ref.name, CLOUD),
    )


def _cloud_env(observed: Observed, form: CloudWorker) -> list[EnvVar]:
    worker = literal("WORKER_NAME", worker_name(observed.ref.name, CLOUD))
    examples = form.hard_examples
    bound = [literal("HARD_EXAMPLES_MAX_BYTES", str(examples.max_bytes))] if examples else []
    return [
        *bound,
        *_common_env(observed),
        worker,
        # without this variable Sedna's library guesses an address
        field("BIG_MODEL_BIND_IP", "status.podIP"),
        literal("BIG_MODEL_BIND_PORT", str(PORT)),
    ]


def _edge_env(observed: Observed, spec: JointInferenceServiceSpec) -> list[EnvVar]:
    name, namespace, form = observed.ref.name, observed.ref.namespace, spec.edge_worker
    poll_s = str(form.model.poll_period_seconds)
    # The same with a new version of the model, so the pod stays.
    hot = [literal(HOT_MODEL, form.model.name), literal("MODEL_POLL_PERIOD_SECONDS", poll_s)]
    return [
        *_common_env(observed),
        # Before the variables of the worker API and the proxy: Kubernetes expands only names that
        # precede.
        *_worker_name_env(name, form),
        # The DNS name, as in Sedna: a Service that is made again has another address.
        literal("BIG_MODEL_IP", f"{service_name(name)}.{namespace}"),
        literal("BIG_MODEL_PORT", str(PORT)),
        *mining.environment(form.mining),
        *(hot if form.model.is_hot else ()),
        *worker_api(observed.settings, secret_name(name), pods.WORKER_SECRET),
        *transport.environment(spec.transport, observed.settings),
    ]


def _common_env(observed: Observed) -> list[EnvVar]:
    ref = observed.ref
    return [literal("NAMESPACE", ref.namespace), literal("SERVICE_NAME", ref.name)]


def _worker_name_env(name: str, form: EdgeWorker) -> list[EnvVar]:
    if fixed_node(form):
        return [literal("WORKER_NAME", worker_name(name, EDGE))]
    # One template serves pods on many nodes, so each pod makes its name of its own node.
    node = field("NODE_NAME", "spec.nodeName")
    role = FLEET if form.per_node else EDGE
    return [node, literal("WORKER_NAME", worker_name(name, role, "$(NODE_NAME)"))]


def hot_model(child: Object) -> str:
    """The Model that the workers of a Deployment or a pod load hot; "": none."""
    spec = mapping(child.get("spec"))
    pod = mapping(mapping(spec["template"]).get("spec")) if "template" in spec else spec
    for container in pod.get("containers") or ():
        for variable in container.get("env") or ():
            if variable.get("name") == HOT_MODEL:
                return str(variable.get("value", ""))
    return ""
