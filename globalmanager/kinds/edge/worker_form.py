"""The two forms in which a user describes a worker: a pod `template`, or a `workerSpec`.

Both forms become a pod template, which `pods` completes. These kinds come from Sedna.
"""

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import Final

from edgeai.api import templates
from edgeai.api.resources import Object
from edgeai.api.specs import InvalidSpec, check_object_name, shown
from edgeai.api.workers import WorkerForm, WorkerSpec
from edgeai.ids import WorkerName
from edgeai.labels import LABEL_WORKER
from globalmanager.contract import Observed, WorkerSettings
from globalmanager.kinds.shared import pods, storage
from globalmanager.kinds.shared.pods import EnvVar

_ENV_NAME: Final = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*\Z")
_SCRIPTS_VOLUME: Final = "edgeai-scripts"


# ---- checks -------------------------------------------------------------------------------------


def check(form: WorkerForm, path: str) -> None:
    """Raises: InvalidSpec unless `build` can make a pod template from `form` (at `path`)"""
    # Sedna's older API has workerSpec, the newer one template. Of two forms one would be ignored.
    if (form.worker_spec is None) == (form.template is None):
        both = form.template is not None
        problem = "has both workerSpec and template" if both else "has no container"
        raise InvalidSpec(path, problem, "give exactly one of workerSpec and template")
    if form.template is not None:
        _check_template(form, form.template, path)
    if form.worker_spec is not None:
        _check_worker_spec(form.worker_spec, f"{path}.workerSpec")
    if fixed_node(form):
        check_object_name(fixed_node(form), f"{path}.nodeName", "Node")


def _check_template(form: WorkerForm, template: Object, path: str) -> None:
    template_node = templates.check(template, f"{path}.template").spec.node_name
    # nodeName of the worker would win, and the node in the template would have no effect.
    if form.node_name and template_node and template_node != form.node_name:
        problem = f"{shown(form.node_name)} is not {shown(template_node)} of template.spec.nodeName"
        raise InvalidSpec(f"{path}.nodeName", problem, "name the node once")


def _check_worker_spec(worker_spec: WorkerSpec, path: str) -> None:
    directory, file = worker_spec.script_dir, worker_spec.script_boot_file
    # The directory becomes a hostPath, and the API server refuses '..' there.
    if not directory.startswith("/") or ".." in directory.split("/"):
        problem = f"{shown(directory)} is no absolute path without '..'"
        raise InvalidSpec(f"{path}.scriptDir", problem, "write it like /code")
    # Only the directory is mounted, so a script outside of it does not exist in the pod.
    if file.startswith("/") or ".." in file.split("/"):
        problem = f"{shown(file)} is no path within scriptDir"
        raise InvalidSpec(f"{path}.scriptBootFile", problem, "write it like inference.py")
    for index, parameter in enumerate(worker_spec.parameters):
        # The API server would refuse the pod, long after the user has applied the job.
        if not _ENV_NAME.match(parameter.key):
            problem = f"{shown(parameter.key)} cannot be the name of an environment variable"
            remedy = "use letters, digits, '_', '-' and '.', not starting with a digit"
            raise InvalidSpec(f"{path}.parameters[{index}].key", problem, remedy)


# ---- reading ------------------------------------------------------------------------------------


def fixed_node(form: WorkerForm) -> str:
    """The node that the user names; "" when Kubernetes chooses. `check` has accepted `form`."""
    if form.node_name or form.template is None:
        return form.node_name
    return form.template["spec"].get("nodeName") or ""


def framework(worker_spec: WorkerSpec) -> str:
    """The key of the worker's image in WorkerSettings.framework_images."""
    return f"{worker_spec.framework_type}:{worker_spec.framework_version}"


def set_by_user(form: WorkerForm, names: Iterable[str]) -> list[str]:
    """The names among `names` that a container of the template sets as environment variables."""
    if form.template is None:
        return []
    containers = form.template["spec"]["containers"]
    variables = {item["name"] for container in containers for item in container.get("env") or ()}
    # The user's variable wins, so what edgeai needs may be lost. A hint says so.
    return [name for name in names if name in variables]


# ---- building -----------------------------------------------------------------------------------


def build(
    observed: Observed,
    form: WorkerForm,
    *,
    role: str,
    env: Sequence[EnvVar],
    data: storage.Placement,
    name: WorkerName | None,
    restart_policy: str = "Always",  # the only policy that a Deployment may have
    is_edge: bool = False,
) -> Object:
    """A worker's pod template. `check` has accepted the form, and the settings have its image.

    Args:
        name: of the worker; None when every pod has its own worker name
        is_edge: see `pods.build`
    """
    return pods.build(
        observed,
        given_template(form, observed.settings),
        role=role,
        env=env,
        data=data,
        # The LocalController finds by this label the pod of a worker among the pods of its node.
        labels={LABEL_WORKER: name} if name else {},
        node=fixed_node(form),
        restart_policy=restart_policy,
        is_edge=is_edge,
    )


def given_template(form: WorkerForm, settings: WorkerSettings) -> Object:
    """The template in the form, or one that runs the script of its workerSpec."""
    if form.template is not None:
        return form.template
    worker_spec = form.worker_spec
    assert worker_spec is not None  # `check` has made sure
    directory = worker_spec.script_dir
    # Read-only: all workers of the node that name the directory run these scripts.
    mount = {"name": _SCRIPTS_VOLUME, "mountPath": directory, "readOnly": True}
    container = {
        "name": "worker",
        "image": settings.framework_images[framework(worker_spec)],
        "command": ["python3", posixpath.join(directory, worker_spec.script_boot_file)],
        "env": [pods.literal(item.key, item.value) for item in worker_spec.parameters],
        "volumeMounts": [mount],
    }
    volumes = [storage.host_directory(_SCRIPTS_VOLUME, directory)]
    return {"spec": {"containers": [container], "volumes": volumes}}
