"""Creates and deletes the pods of Deployments, and writes the status of Deployments.

The module `deployments` plans the steps.
"""

from common.logs import get_logger
from edgeai import times
from edgeai.localcluster.controllers.controller import Controller
from edgeai.localcluster.controllers.deployments import (
    Plan,
    deployment_status,
    hash_of,
    is_matched,
    new_pod,
    owner_reference,
    plan,
)
from edgeai.localcluster.controllers.events import EventRecorder
from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.pods import is_ended
from edgeai.localcluster.objects.resources import DEPLOYMENTS, PODS, Key, Object
from edgeai.localcluster.objects.resources import key as key_of
from edgeai.localcluster.objects.store import Change, Store

log = get_logger(__name__)

REFUSAL_RETRY_S = 5.0


class DeploymentController(Controller[Key]):
    """Carries out the plan of every Deployment."""

    def __init__(self, store: Store, *, now: times.Clock = times.utc_now) -> None:
        super().__init__(store, "deployments")
        self._now = now
        self._events = EventRecorder(store, component="deployment-controller", now=now)

    def _add_all(self, namespace: str = "") -> None:
        for deployment in self._store.list(DEPLOYMENTS, namespace=namespace).items:
            self._add(key_of(deployment))

    def _changed(self, change: Change) -> None:
        if change.resource is DEPLOYMENTS:
            self._add(key_of(change.object))
        elif change.resource is PODS:
            namespace = change.object["metadata"]["namespace"]
            if owner := _controller(change.object):
                self._add((namespace, owner["name"]))
            elif hash_of(change.object) and change.type != "DELETED":
                self._add_all(namespace)  # a Deployment may adopt the pod

    async def _reconcile(self, key: Key) -> float | None:
        deployment = self._store.find(DEPLOYMENTS, *key)
        if deployment is None or "deletionTimestamp" in deployment["metadata"]:
            return None
        self._claim(deployment)
        step = plan(deployment, self._pods(deployment))
        refusal = self._carry_out(deployment, step)
        self._write_status(deployment, refusal)
        return REFUSAL_RETRY_S if refusal else None

    def _claim(self, deployment: Object) -> None:
        """Release pods whose labels no longer match, and adopt matching pods without a controller.

        Source: Kubernetes' ReplicaSet controller.
        """
        uid, namespace = deployment["metadata"]["uid"], deployment["metadata"]["namespace"]
        for pod in self._store.list(PODS, namespace=namespace).items:
            owner = _controller(pod)
            is_own = owner is not None and owner["uid"] == uid
            if is_own == is_matched(deployment, pod) or "deletionTimestamp" in pod["metadata"]:
                continue
            owners = pod["metadata"].get("ownerReferences") or []
            if is_own:
                owners = [other for other in owners if other["uid"] != uid]
            elif owner is None and not is_ended(pod):
                owners = [*owners, owner_reference(deployment)]
            else:
                continue
            pod["metadata"]["ownerReferences"] = owners
            self._store.update(PODS, pod)
            action = "pod released" if is_own else "pod adopted"
            log.info(action, pod=pod["metadata"]["name"], deployment=deployment["metadata"]["name"])

    def _pods(self, deployment: Object) -> list[Object]:
        uid = deployment["metadata"]["uid"]
        pods = self._store.list(PODS, namespace=deployment["metadata"]["namespace"]).items
        return [pod for pod in pods if (owner := _controller(pod)) and owner["uid"] == uid]

    def _carry_out(self, deployment: Object, step: Plan) -> str:
        """Returns: why the API refused a pod; "" when it did not"""
        namespace = deployment["metadata"]["namespace"]
        for name in step.delete:
            self._store.delete(PODS, namespace, name)
            self._events.normal(deployment, "SuccessfulDelete", f"Deleted pod: {name}")
        for _ in range(step.create):
            try:
                pod = self._store.create(PODS, new_pod(deployment))
            except errors.Forbidden as error:
                self._events.warning(deployment, "FailedCreate", f"Error creating: {error.message}")
                return error.message
            name = pod["metadata"]["name"]
            self._events.normal(deployment, "SuccessfulCreate", f"Created pod: {name}")
            log.info("pod created", deployment=deployment["metadata"]["name"], pod=name)
        return ""

    def _write_status(self, deployment: Object, refusal: str) -> None:
        pods = self._pods(deployment)
        status = deployment_status(deployment, pods, self._now(), refusal=refusal)
        if status != deployment.get("status"):
            names = {name: deployment["metadata"][name] for name in ("namespace", "name", "uid")}
            update = {"metadata": names, "status": status}
            self._store.update(DEPLOYMENTS, update, subresource="status")


def _controller(pod: Object) -> Object | None:
    """The pod's ownerReference with `controller: true`, which names a Deployment; else None."""
    for owner in pod["metadata"].get("ownerReferences") or []:
        if owner.get("controller"):
            return dict(owner)
    return None
