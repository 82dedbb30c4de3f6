"""The life of docs/adding-a-training-kind.md's BatchTrain, from before its creation to its end.

Run on the local cluster and on a real one, which differ in nothing that is done here.
"""

import time
from collections.abc import Callable
from typing import Final

from edgeai.cli.api import Object, path_of
from tests.support.jobs import Api, Job

LAUNCHER: Final = "Pod/mnist-launcher-0"
SETTLED_S: Final = 3.0  # so long nothing must be written
_CHILDREN: Final = (
    ("v1", "Pod"),
    ("v1", "Service"),
    ("v1", "ConfigMap"),
    ("v1", "ServiceAccount"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
)


def worker(index: int) -> str:
    return f"Pod/mnist-worker-{index}"


class Training:
    """
    Args:
        create: how this cluster's client creates an object
        train, scale: manifests of the page, ready for this cluster
        succeed: lets the container of a pod end well; takes the pod's name
        timeout_s: as of `Job`
    """

    def __init__(
        self,
        api: Api,
        create: Callable[[Object], Object],
        *,
        train: Object,
        scale: Object,
        succeed: Callable[[str], None],
        timeout_s: float,
    ) -> None:
        self.job = Job(api, create, train, timeout_s=timeout_s, types=_CHILDREN)
        self.scale = Job(api, create, scale, timeout_s=timeout_s, types=())
        self._api = api
        self._create = create
        self._succeed = succeed
        self._timeout_s = timeout_s

    def live(self) -> None:
        """From the first to the last."""
        self.scale_waits_for_its_job()
        self.job_is_made_and_scaled()
        self.both_versions_show_it()
        self.children_are_as_declared()
        self.an_edit_touches_no_pod()
        self.another_scale_is_executed_in_its_turn()
        self.who_is_done_is_not_run_again()
        self.nothing_is_written()
        self.it_ends_with_its_launcher()
        self.nothing_is_written()
        self.it_goes_with_all_that_it_owns()

    # ---- steps, in this order -------------------------------------------------------------------

    def scale_waits_for_its_job(self) -> None:
        self.scale.create()
        self.scale.wait_for_condition("ResolvedRefs", "JobNotFound")
        assert "mnist" in self.scale.condition("ResolvedRefs")["message"]
        assert "phase" not in self.scale.status()

    def job_is_made_and_scaled(self) -> None:
        uid = self.job.create()
        self.scale.wait_for("phase", "Executed")
        self.job.wait_for("phase", "Running")
        assert self.job.status()["scaledWorkers"] == 3
        assert controllers(self._api.get(self.scale.path)) == [uid]
        self.scale.wait_for_condition("ResolvedRefs", "Resolved")
        assert [key for key in self.job.made() if key.startswith("Pod/")] == [
            LAUNCHER,
            *(worker(index) for index in range(3)),
        ]

    def both_versions_show_it(self) -> None:
        old, new = self.job.path, self.job.path.replace("/v1alpha1/", "/v1/")
        assert old != new
        shown = {path: self._api.get(path) for path in (old, new)}
        assert shown[old].pop("apiVersion") == "edgeai.io/v1alpha1"
        assert shown[new].pop("apiVersion") == "edgeai.io/v1"
        for each in shown.values():
            each["metadata"].pop("managedFields", None)
        assert shown[old] == shown[new]
        assert shown[new]["spec"]["replicas"] == 2

    def children_are_as_declared(self) -> None:
        made = {key: objects[0] for key, objects in self.job.made().items()}
        assert sorted(made) == sorted(self.expected(3))
        uid = self._api.get(self.job.path)["metadata"]["uid"]
        assert {key: controllers(each) for key, each in made.items()} == {
            key: [uid] for key in made
        }
        self.check_hosts(3)
        for index in range(3):
            service, pod = made[f"Service/mnist-worker-{index}"], made[worker(index)]
            assert service["spec"]["clusterIP"] == "None"
            assert [(p["name"], p["port"]) for p in service["spec"]["ports"]] == [("http", 8080)]
            assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
            assert pod["spec"]["restartPolicy"] == "OnFailure"
        assert made[LAUNCHER]["spec"]["restartPolicy"] == "Never"
        assert made[LAUNCHER]["spec"]["serviceAccountName"] == "mnist-launcher-0"

    def an_edit_touches_no_pod(self) -> None:
        before = self.job.uids()
        template = self.job.manifest["spec"]["worker"]
        (container,) = template["spec"]["containers"]
        edited = {"spec": {**template["spec"], "containers": [{**container, "image": "other:2"}]}}
        generation = self._api.get(self.job.path)["metadata"]["generation"]
        self.job.edit(worker=edited, ports={"http": 8081})
        self.job.wait_for("observedGeneration", generation + 1)

        def ports() -> bool:
            made = self.job.made()
            found = [made[f"Service/mnist-worker-{n}"][0]["spec"]["ports"] for n in range(3)]
            assert {port["port"] for each in found for port in each} == {8081}, found
            return True

        self.job.eventually("the edit in all Services", ports)
        assert self.job.uids() == before

    def another_scale_is_executed_in_its_turn(self) -> None:
        before = self.job.uids()
        manifests = [scaled(self.scale.manifest, "four", 4), scaled(self.scale.manifest, "two", 2)]
        api, create = self._api, self._create
        four, two = (
            Job(api, create, each, timeout_s=self._timeout_s, types=()) for each in manifests
        )
        four.create()
        four.wait_for("phase", "Executed")
        self.job.wait_for("phase", "Running")
        after = self.job.uids()
        assert {key: after.get(key) for key in before} == before
        assert sorted(after) == sorted(self.expected(4))
        self.check_hosts(4)
        two.create()
        two.wait_for("phase", "Executed")
        self.job.eventually(
            "two workers", lambda: sorted(self.job.made()) == sorted(self.expected(2))
        )
        self.check_hosts(2)
        assert self.job.uids().items() <= before.items()

    def who_is_done_is_not_run_again(self) -> None:
        self._succeed("mnist-worker-0")
        self.job.wait_for("finished", ["mnist-worker-0"])
        before = self.job.uids()
        self.job.delete_made(worker(0))
        self.job.delete_made(worker(1))  # seen to be healed: so was the other, if at all
        del before[worker(0)]
        self.job.wait_for_new(before, worker(1))
        self.job.wait_for("phase", "Running")
        assert self.job.status()["finished"] == ["mnist-worker-0"]

    def it_ends_with_its_launcher(self) -> None:
        self._succeed("mnist-launcher-0")
        self.job.wait_for("phase", "Succeeded")
        status = self.job.status()
        conditions = {each["type"]: each["status"] for each in status["conditions"]}
        assert [*conditions.items()] == [
            ("Accepted", "True"),
            ("Running", "False"),
            ("Scaled", "True"),
            ("Complete", "True"),
        ]
        assert self.job.condition("Scaled")["message"] == "2 workers, as BatchScale two asks"
        assert status["completionTime"] >= status["startTime"]
        self.job.wait_for("active", 0)
        self.job.eventually("the end of what still runs", lambda: worker(1) not in self.job.made())
        assert LAUNCHER in self.job.made()

    def nothing_is_written(self) -> None:
        """For some time; what is on its way settles before."""
        self.job.eventually("a time without a write", self._is_quiet)

    def _is_quiet(self) -> bool:
        before = self._versions()
        time.sleep(SETTLED_S)
        after = self._versions()
        changed = [key for key in after if after[key] != before.get(key)]
        assert not changed, f"written again: {changed}"
        return True

    def _versions(self) -> dict[str, str]:
        objects = [self._api.get(self.job.path), self._api.get(self.scale.path)]
        objects += [each for found in self.job.made().values() for each in found]
        return {path_of(each): each["metadata"]["resourceVersion"] for each in objects}

    def it_goes_with_all_that_it_owns(self) -> None:
        self.job.edit(ttlSecondsAfterFinished=1)
        self.job.wait_until_gone()
        self.job.eventually(
            "the end of the BatchScale", lambda: self._api.find(self.scale.path) is None
        )

    # ---- what is expected -----------------------------------------------------------------------

    def expected(self, count: int) -> list[str]:
        """Keys of all that a job of so many workers has."""
        indices = range(count)
        account = [f"{kind}/mnist-launcher-0" for kind in ("ServiceAccount", "Role", "RoleBinding")]
        services = [f"Service/mnist-worker-{index}" for index in indices]
        return ["ConfigMap/mnist-hosts", LAUNCHER, *account, *services, *map(worker, indices)]

    def check_hosts(self, count: int) -> None:
        """In the ConfigMap and in the Role."""
        made = self.job.made()
        (config,), (role,) = made["ConfigMap/mnist-hosts"], made["Role/mnist-launcher-0"]
        hosts = [f"mnist-worker-{index}" for index in range(count)]
        assert config["data"]["hosts"].splitlines() == hosts
        assert [
            (rule["resources"], rule["verbs"], rule["resourceNames"]) for rule in role["rules"]
        ] == [
            (["pods"], ["get"], hosts),
            (["pods/exec"], ["create", "get"], hosts),
        ]


def scaled(manifest: Object, name: str, workers: int) -> Object:
    """Another BatchScale of the same job."""
    metadata = {**manifest["metadata"], "name": name}
    return {**manifest, "metadata": metadata, "spec": {**manifest["spec"], "workers": workers}}


def controllers(object_: Object) -> list[str]:
    owners = object_["metadata"].get("ownerReferences") or ()
    return [owner["uid"] for owner in owners if owner.get("controller")]
