"""The pods and Services of a training job: one of each for every replica.

The names are `job-type-index`, the type in lower case. They are the same in every attempt of a
replica, and they are known before any pod exists. An annotation tells the attempt of a pod.
"""

from collections.abc import Iterator
from typing import Any, Final

from edgeai.api.objects import NOT_MANAGED
from edgeai.api.resources import PODS, SERVICES, Object
from edgeai.api.training import RestartPolicy, RestartScope
from edgeai.ids import WorkerName
from edgeai.labels import LABEL_WORKER
from globalmanager.contract import Create, Observed, UpdateRule
from globalmanager.kinds.shared import children, objects
from globalmanager.kinds.shared.attempts import ATTEMPT, LABEL_PREFIX, OPERATOR_NAME
from globalmanager.kinds.shared.replication import replica_labels, replica_name
from globalmanager.kinds.training import edge_placement
from globalmanager.kinds.training.framework import EnvVar, Framework, KubeflowJob, Replicas

JOB_NAME: Final = f"{LABEL_PREFIX}job-name"
REPLICA_TYPE: Final = f"{LABEL_PREFIX}replica-type"
REPLICA_INDEX: Final = f"{LABEL_PREFIX}replica-index"
JOB_ROLE: Final = f"{LABEL_PREFIX}job-role"
# A job that an operator began goes on with the operator's pods, so the engine watches these, too.
# The controller reference still decides whose they are.
_OF_OPERATORS: Final = (
    # the training operator since 1.5
    f"{OPERATOR_NAME} in (pytorchjob-controller,tfjob-controller),{NOT_MANAGED}",
    # the operators before: tf-operator, pytorch-operator, the first training operators
    f"group-name=kubeflow.org,!{OPERATOR_NAME},{NOT_MANAGED}",
)
FOLLOWS: Final = {SERVICES: _OF_OPERATORS, PODS: _OF_OPERATORS}
_IDENTIFYING: Final = ("job-name", "replica-type", "replica-index")
"""The ends of the labels by which the older operators' Services select a pod."""
# Without KEEP an edit of a template would end pods that train. It holds for pods that come later.
OWNS: Final = {SERVICES: UpdateRule.REPLACE, PODS: UpdateRule.KEEP}


def name_of(job: str, type_: str, index: int) -> WorkerName:
    # As upstream. The Service has this name, too, and a DNS name has no upper case.
    return replica_name(job, type_.lower(), index)


Member = tuple[WorkerName, Replicas, int]
"""A replica: its name, the replicas of its type, its index among them."""


def names(job: str, spec: KubeflowJob) -> Iterator[Member]:
    """Each replica, in the order of types and indices."""
    for replica in spec.replicas:
        for index in range(replica.count):
            yield name_of(job, replica.type, index), replica, index


def is_too_large(observed: Observed, spec: KubeflowJob) -> bool:
    """Whether all pods of the job together would be larger than a job may be."""
    return spec.template_bytes > observed.settings.job_template_bytes


def type_labels(job: str, framework: Framework, type_: str) -> dict[str, str]:
    """The labels that all pods of a type have, as users of the Kubeflow operators select them."""
    return {
        OPERATOR_NAME: framework.operator,
        JOB_NAME: job,
        REPLICA_TYPE: type_.lower(),
    }


def is_leader(spec: KubeflowJob, type_: str, index: int) -> bool:
    """Whether it has the label job-role=master: of a leading type, or else the first worker."""
    # The SDK of the operator reads the logs of the pod with this label.
    leaders = spec.framework.leaders
    leading = [
        replica.type for replica in spec.replicas if replica.type in leaders and replica.count
    ]
    return type_ in leading if leading else (type_, index) == ("Worker", 0)


def service(
    observed: Observed, spec: KubeflowJob, replica: Replicas, index: int, present: Object | None
) -> Create:
    """The headless Service of a replica, with the ports of the container that trains. Labels and
    selector are the training operator's, so each can go on with the other's Services and pods.

    Args: present: the pod, which of an older operator has other labels for the selector
    """
    selector = {
        **type_labels(observed.ref.name, spec.framework, replica.type),
        REPLICA_INDEX: str(index),
    }
    marks = present["metadata"].get("labels") or {} if present is not None else selector
    # Nobody changes the labels of a pod that runs, so a new Service must select it by the old ones.
    if "job-name" in marks and not selector.items() <= marks.items():
        selector = {key: value for key, value in marks.items() if key.endswith(_IDENTIFYING)}
    return children.service(
        observed,
        name=name_of(observed.ref.name, replica.type, index),
        role=replica.type.lower(),
        ports=ports(spec.framework, replica.template),
        selector=selector,
        labels=selector,
        headless=True,
    )


def ports(framework: Framework, template: Any) -> dict[str, int]:
    """The ports of the container that trains: name -> number, each number once, because a Service
    has a number only once. The framework's own port is added when the container does not have it.
    """
    own_ports = trainer(framework, template).get("ports") or []
    own = next(
        (port["containerPort"] for port in own_ports if port.get("name") == framework.port_name),
        framework.port,
    )
    names = {
        port["containerPort"]: port.get("name") or f"port-{port['containerPort']}"
        for port in reversed(own_ports)
    }
    port_numbers = {
        names[number]: number for number in (port["containerPort"] for port in own_ports)
    }
    # The template may give the port another name or none; a Service takes each number once.
    return {name: n for name, n in port_numbers.items() if n != own} | {framework.port_name: own}


def port_of(framework: Framework, replica: Replicas) -> int:
    """The number of the framework's port in the pods of this type."""
    return ports(framework, replica.template)[framework.port_name]


def trainer(framework: Framework, template: Any) -> Object:
    """The container that trains. Total for a valid template."""
    containers: list[Object] = template["spec"]["containers"]
    # As upstream, the first container is the trainer where none has the framework's name.
    return next((one for one in containers if one["name"] == framework.container), containers[0])


def pod(
    observed: Observed, spec: KubeflowJob, replica: Replicas, index: int, *, attempt: int
) -> Create:
    """The pod of a replica.

    The template's own variables keep their place. A variable of the framework is appended, and
    replaces a variable of the same name, as the last one of a name counts in Kubernetes.
    """
    framework, role = spec.framework, replica.type.lower()
    own_template = replica.template
    env = framework.environment(observed, replica.type, index)
    containers = [
        _container(framework, one, env, is_trainer=one is trainer(framework, own_template))
        for one in own_template["spec"]["containers"]
    ]
    before = [
        *framework.init_containers(observed, replica.type, index),
        *(own_template["spec"].get("initContainers") or []),
    ]
    tolerations = edge_placement.tolerations(observed, own_template)
    metadata = own_template.get("metadata") or {}
    # The job's labels win: Services, clients and this plan find the pod by them.
    marks = {
        **(metadata.get("labels") or {}),
        **objects.job_labels(observed, role),
        **replica_labels(role, index),
        **type_labels(observed.ref.name, framework, replica.type),
        REPLICA_INDEX: str(index),
        LABEL_WORKER: name_of(observed.ref.name, replica.type, index),
        **({JOB_ROLE: "master"} if is_leader(spec, replica.type, index) else {}),
    }
    template = {
        "metadata": {
            "labels": marks,
            # No part of the name, so two pods of one replica cannot exist at the same time.
            "annotations": {**(metadata.get("annotations") or {}), ATTEMPT: str(attempt)},
        },
        "spec": {
            **own_template["spec"],
            **({"initContainers": before} if before else {}),
            "containers": containers,
            **({"tolerations": tolerations} if tolerations else {}),
            # As upstream, the policy of the replica replaces the template's, and an event says so.
            "restartPolicy": str(_policy_of_pods(spec, replica)),
        },
    }
    name = name_of(observed.ref.name, replica.type, index)
    # Nobody compares the template, and the hashes of 110 large pods took seconds of a plan.
    creation = children.pod(observed, name=name, role=role, template=template, is_kept=True)
    # A node that boots without the cloud cannot fill the volume of a token, and starts no such pod.
    return (
        children.without_token(creation) if edge_placement.chooses_edge(own_template) else creation
    )


def _policy_of_pods(spec: KubeflowJob, replica: Replicas) -> RestartPolicy:
    """What the node does with the containers of a pod.

    Where a failure restarts the whole job, the node must not start one container again.
    """
    is_whole = spec.policy.restart_scope is RestartScope.JOB
    # The exit code decides, and a restart by the kubelet would hide it from the plan.
    if replica.policy is RestartPolicy.EXIT_CODE:
        return RestartPolicy.NEVER
    # The peers of a lost process end, too, and the node would bring them back one by one.
    if replica.policy is RestartPolicy.ON_FAILURE and is_whole:
        return RestartPolicy.NEVER
    return replica.policy


def _container(
    framework: Framework, own_container: Object, env: list[EnvVar], *, is_trainer: bool
) -> Object:
    container = own_container
    if is_trainer:
        own_ports = own_container.get("ports") or []
        numbers = {port["containerPort"] for port in own_ports}
        is_named = any(port.get("name") == framework.port_name for port in own_ports)
        # The operator adds its port by default, where the template leaves it out.
        if not is_named and framework.port not in numbers:
            framework_port = {"name": framework.port_name, "containerPort": framework.port}
            container = {**container, "ports": [*own_ports, framework_port]}
    if env and (is_trainer or framework.sets_every_container):
        framework_names = {variable["name"] for variable in env}
        own_env = [
            one for one in own_container.get("env") or [] if one["name"] not in framework_names
        ]
        container = {**container, "env": [*own_env, *env]}
    return container
