"""What must hold of a JointInferenceService on every cluster: it heals, it follows its spec, it
takes along what was made for it, and it never touches another one.

A test file subclasses `InferenceRules` and has the fixtures of its cluster:

- service         an InferenceService `digits` that runs
- neighbour       another one in its namespace, which runs; nobody but its own may touch it
- manager_down    () -> context in which no GlobalManager runs
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final

import pytest

from edgeai.cli.api import Object, path_of
from tests.support.jobs import Job

ManagerDown = Callable[[], AbstractContextManager[None]]

EDGE_POD: Final = "Pod/digits-edge"
CLOUD_POD: Final = "Pod/digits-cloud"
EDGE_DEPLOYMENT: Final = "Deployment/digits-deployment-edge"
CLOUD_DEPLOYMENT: Final = "Deployment/digits-deployment-cloud"
FRONT: Final = "Service/digits-cloud"
SECRET: Final = "Secret/digits-edge"
ALL: Final = {EDGE_POD, CLOUD_POD, EDGE_DEPLOYMENT, CLOUD_DEPLOYMENT, FRONT, SECRET}
PODS: Final = {"edge": EDGE_POD, "cloud": CLOUD_POD}


class InferenceService(Job, ABC):
    """A JointInferenceService, and the two Models that are its alone."""

    models: dict[str, Object]
    """By the role of the worker that uses it."""

    @abstractmethod
    def set_ready(self, role: str, *, ready: bool) -> None:
        """The one pod of `role` passes its readiness probe, or does not."""

    def set_env(self, role: str, value: str) -> None:
        """Edit the worker of `role`: its EDITED has this value."""
        field = f"{role}Worker"
        template = self.api.get(self.path)["spec"][field]["template"]
        template["spec"]["containers"][0]["env"] = [{"name": "EDITED", "value": value}]
        self.edit(**{field: {"template": template}})

    def env(self, role: str) -> dict[str, str]:
        (pod,) = self.made()[PODS[role]]
        (container,) = pod["spec"]["containers"]
        return {each["name"]: each.get("value", "") for each in container["env"]}

    def change_model(self, role: str) -> None:
        model = self.models[role]
        self.api.patch(path_of(model), {"spec": {"url": model["spec"]["url"] + "2"}})

    def told(self) -> set[str]:
        """Reasons of its Events."""
        metadata = self.api.get(self.path)["metadata"]
        events = self.api.get(f"/api/v1/namespaces/{metadata['namespace']}/events")["items"]
        uid = metadata["uid"]
        return {each["reason"] for each in events if each["involvedObject"].get("uid") == uid}

    def creations(self, uid: str) -> list[tuple[str, int]]:
        """What its events say was created, and how often."""
        namespace = self.manifest["metadata"]["namespace"]
        events = self.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
        return sorted(
            (event["message"], event["count"])
            for event in events
            if event["involvedObject"].get("uid") == uid and event["reason"] == "Created"
        )


class InferenceRules:
    @pytest.fixture(autouse=True)
    def neighbour_is_left_alone(
        self, service: InferenceService, neighbour: InferenceService
    ) -> Iterator[None]:
        """Whatever a test does to the service."""
        before = neighbour.marks()
        assert len(before) == len(ALL)
        yield
        assert neighbour.marks() == before

    # ---- healing --------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("deleted", "policy", "new"),
        [
            pytest.param(EDGE_POD, "", {EDGE_POD}, id="edge pod"),
            pytest.param(CLOUD_POD, "", {CLOUD_POD}, id="cloud pod"),
            pytest.param(EDGE_DEPLOYMENT, "", {EDGE_DEPLOYMENT, EDGE_POD}, id="edge Deployment"),
            pytest.param(
                CLOUD_DEPLOYMENT, "", {CLOUD_DEPLOYMENT, CLOUD_POD}, id="cloud Deployment"
            ),
            pytest.param(
                EDGE_DEPLOYMENT, "Foreground", {EDGE_DEPLOYMENT, EDGE_POD}, id="in the foreground"
            ),
            pytest.param(EDGE_DEPLOYMENT, "Orphan", {EDGE_DEPLOYMENT}, id="without its pod"),
            pytest.param(FRONT, "", {FRONT}, id="Service"),
            pytest.param(SECRET, "", {SECRET}, id="Secret"),
        ],
    )
    def test_what_is_deleted_comes_back_each_time_and_nothing_else_is_touched(
        self, service: InferenceService, deleted: str, policy: str, new: set[str]
    ) -> None:
        for _ in range(2):
            before = service.uids()
            service.delete_made(deleted, policy)
            service.wait_for_new(before, *new)
        service.wait_for("phase", "Running")

    def test_what_disappears_while_the_manager_is_down_comes_back(
        self, service: InferenceService, manager_down: ManagerDown
    ) -> None:
        before = service.uids()
        with manager_down():
            for deleted in (EDGE_DEPLOYMENT, FRONT, CLOUD_POD):
                service.delete_made(deleted)
            wait_until_lost(service, EDGE_DEPLOYMENT, EDGE_POD, FRONT)
        service.wait_for_new(before, *ALL - {CLOUD_DEPLOYMENT, SECRET})
        service.wait_for("phase", "Running")

    def test_a_worker_that_was_scaled_away_comes_back(self, service: InferenceService) -> None:
        before = service.uids()
        (deployment,) = service.made()[EDGE_DEPLOYMENT]
        scaled = service.api.patch(path_of(deployment), {"spec": {"replicas": 0}})

        def check() -> bool:
            # The pod is another one, unless the manager is faster than the Deployment controller.
            (found,), now = service.made()[EDGE_DEPLOYMENT], service.uids()
            assert found["metadata"]["generation"] > scaled["metadata"]["generation"], found
            assert now == {**before, EDGE_POD: now.get(EDGE_POD)}, now
            return bool(found["spec"]["replicas"])

        service.eventually("a replica of the Deployment again", check)
        service.wait_for("phase", "Running")

    def test_what_somebody_changed_is_put_back_and_told(self, service: InferenceService) -> None:
        (front,), (deployment,) = service.made()[FRONT], service.made()[EDGE_DEPLOYMENT]
        selector, labels = front["spec"]["selector"], deployment["metadata"]["labels"]
        service.api.patch(path_of(front), {"spec": {"selector": {"edgeai.io/role": "other"}}})
        service.api.patch(path_of(deployment), {"metadata": {"labels": {"edgeai.io/role": None}}})

        def check() -> bool:
            assert service.api.get(path_of(front))["spec"]["selector"] == selector
            assert service.api.get(path_of(deployment))["metadata"]["labels"] == labels
            return True

        service.eventually("what the service wants", check)
        service.eventually("its Event", lambda: "Restored" in service.told())

    def test_a_quantity_that_the_server_writes_in_another_way_is_no_change_of_somebody(
        self, service: InferenceService, manager_down: ManagerDown
    ) -> None:
        before = service.uids()
        template = service.api.get(service.path)["spec"]["edgeWorker"]["template"]
        template["spec"]["containers"][0]["resources"] = {"limits": {"memory": "2097152Ki"}}
        service.edit(edgeWorker={"template": template})
        service.wait_for_new(before, EDGE_POD)
        service.wait_for("phase", "Running")
        with manager_down():
            marks = service.marks()
        service.edit(cloudWorker={"name": "to see that the manager has looked"})
        service.wait_for("observedGeneration", 3)
        assert service.marks() == marks
        assert "Restored" not in service.told()

    @pytest.mark.parametrize("role", PODS)
    def test_a_readiness_blip_is_told_both_ways_and_replaces_nothing(
        self, service: InferenceService, role: str
    ) -> None:
        before = service.marks()
        service.set_ready(role, ready=False)
        service.wait_for("phase", "Pending")
        running = service.condition("Running")
        assert (running["status"], running["reason"]) == ("False", "Starting")
        assert running["message"] == f"not available yet: {role} worker"
        service.set_ready(role, ready=True)
        service.wait_for("phase", "Running")
        assert service.condition("Running")["status"] == "True"
        assert service.marks() == before

    # ---- following the spec ---------------------------------------------------------------------

    @pytest.mark.parametrize("role", PODS)
    def test_an_edit_rolls_the_worker_that_it_concerns(
        self, service: InferenceService, role: str
    ) -> None:
        """In place: its Deployment is still the same one."""
        before = service.uids()
        service.set_env(role, "yes")
        service.wait_for_new(before, PODS[role])
        assert service.env(role)["EDITED"] == "yes"
        service.wait_for("observedGeneration", 2)
        service.wait_for("phase", "Running")

    @pytest.mark.parametrize("role", PODS)
    def test_a_changed_model_rolls_the_worker_that_uses_it(
        self, service: InferenceService, role: str
    ) -> None:
        before, old = service.uids(), service.env(role)["MODEL_URL"]
        service.change_model(role)
        service.wait_for_new(before, PODS[role])
        assert service.env(role)["MODEL_URL"] == f"{old}2"

    def test_an_edit_while_the_manager_is_down_is_carried_out(
        self, service: InferenceService, manager_down: ManagerDown
    ) -> None:
        before = service.uids()
        with manager_down():
            service.set_env("edge", "yes")
            assert service.status()["observedGeneration"] == 1
        service.wait_for_new(before, EDGE_POD)
        assert service.env("edge")["EDITED"] == "yes"
        service.wait_for("observedGeneration", 2)

    def test_a_model_that_changed_while_the_manager_was_down_is_followed(
        self, service: InferenceService, manager_down: ManagerDown
    ) -> None:
        before, old = service.uids(), service.env("cloud")["MODEL_URL"]
        with manager_down():
            service.change_model("cloud")
        service.wait_for_new(before, CLOUD_POD)
        assert service.env("cloud")["MODEL_URL"] == f"{old}2"

    def test_an_invalid_edit_is_told_and_leaves_the_workers_alone(
        self, service: InferenceService
    ) -> None:
        before = service.marks()
        parameter = {"key": "threshold", "value": "high"}
        mining = {"name": "Threshold", "parameters": [parameter]}
        service.edit(edgeWorker={"hardExampleMining": mining})
        service.wait_for("phase", "Invalid")
        accepted = service.condition("Accepted")
        assert (accepted["status"], accepted["observedGeneration"]) == ("False", 2)
        assert "spec.edgeWorker.hardExampleMining.parameters[0].value" in accepted["message"]
        assert service.status()["observedGeneration"] == 2
        assert service.condition("Running")["status"] == "True"
        service.edit(edgeWorker={"hardExampleMining": None})
        service.wait_for("phase", "Running")
        assert service.condition("Accepted")["status"] == "True"
        assert service.status()["observedGeneration"] == 3
        assert service.marks() == before

    # ---- deletion -------------------------------------------------------------------------------

    @pytest.mark.parametrize("policy", ["Background", "Foreground"])
    def test_deletion_takes_everything_along_and_nothing_comes_back(
        self, service: InferenceService, policy: str
    ) -> None:
        uid = service.api.get(service.path)["metadata"]["uid"]
        service.delete(policy)
        service.wait_until_gone()
        assert service.creations(uid) == [
            ("created 2 deployments: digits-deployment-cloud, digits-deployment-edge", 1),
            ("created Secret digits-edge", 1),
            ("created Service digits-cloud", 1),
        ]
        for model in service.models.values():  # is referred to, and not owned
            assert service.api.find(path_of(model)) is not None

    def test_orphans_go_on_and_keep_their_names(self, service: InferenceService) -> None:
        before = service.uids()
        service.delete("Orphan")
        service.eventually("its end", lambda: service.api.find(service.path) is None)
        orphans = [each for key in ALL - set(PODS.values()) for each in service.made()[key]]
        assert not any(each["metadata"].get("ownerReferences") for each in orphans)
        service.create()
        service.wait_for("phase", "Failed")
        assert service.condition("Running")["reason"] == "NameConflict"
        assert service.uids() == before
        for orphan in orphans:
            service.api.delete(path_of(orphan))
        service.wait_for_new(before, *ALL)
        service.wait_for("phase", "Running")

    def test_created_and_deleted_twice_without_a_pause_it_leaves_nothing(
        self, service: InferenceService
    ) -> None:
        service.delete()
        lives = {service.create()}
        service.delete()
        lives.add(service.create())
        wait_until_made(service)
        service.delete()
        assert len(lives) == 2
        service.wait_until_gone()

    def test_a_second_life_has_nothing_of_the_first(self, service: InferenceService) -> None:
        before = service.uids()
        service.edit(edgeWorker={"hardExampleMining": {"name": "EdgeOnly"}})
        service.wait_for("observedGeneration", 2)
        service.delete()
        uid = service.create()
        service.wait_for_new(before, *ALL)
        service.wait_for("phase", "Running")
        service.wait_for_owner(uid)
        assert service.status()["observedGeneration"] == 1
        assert "HEM_NAME" not in service.env("edge")

    def test_a_deletion_while_the_manager_is_down_leaves_nothing(
        self, service: InferenceService, manager_down: ManagerDown
    ) -> None:
        before = service.uids()
        with manager_down():
            service.delete()
            service.wait_until_gone()
        uid = service.create()  # once this runs the manager has seen everything
        service.wait_for("phase", "Running")
        assert service.owners() == {uid}
        assert not set(service.uids().values()) & set(before.values())


def wait_until_made(service: InferenceService) -> None:
    """Until both Deployments of its latest life are there."""
    uid = service.api.get(service.path)["metadata"]["uid"]

    def check() -> bool:
        made = service.made()
        deployments = [
            each for key in (EDGE_DEPLOYMENT, CLOUD_DEPLOYMENT) for each in made.get(key, ())
        ]
        own = [o for o in deployments if o["metadata"]["labels"]["edgeai.io/uid"] == uid]
        assert len(own) == 2, f"{len(own)} of 2 Deployments"
        return True

    service.eventually("its Deployments", check)


def wait_until_lost(service: InferenceService, *keys: str) -> None:
    def check() -> bool:
        left = [key for key in keys if key in service.made()]
        assert not left, f"there is still {left}"
        return True

    service.eventually("their end", check)
