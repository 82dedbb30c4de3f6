"""kubectl as a user of the training operator calls it, for both kinds."""

import pytest

from tests.clients.clusters import TrainingCluster
from tests.clients.jobs import PYTORCH, TENSORFLOW, Framework, pod_names, training_job
from tests.conformance.kubectl import Kubectl
from tests.conformance.space import Space
from tests.support.waiting import PATIENCE_S, eventually

TIMEOUT = f"--timeout={PATIENCE_S - 10:.0f}s"


class TrainingKubectl(Kubectl):
    def wait(self, framework: Framework, condition: str) -> None:
        said = self("wait", f"{framework.plural}/mnist", f"--for=condition={condition}", TIMEOUT)
        assert said == f"{framework.kind.lower()}.kubeflow.org/mnist condition met\n"


@pytest.fixture
def kubectl(training: TrainingCluster, space: Space) -> TrainingKubectl:
    return TrainingKubectl(training.cluster, space.name)


def test_a_job_is_applied_waited_for_and_deleted(
    kubectl: TrainingKubectl, training: TrainingCluster, space: Space, framework: Framework
) -> None:
    job = training_job(framework, training, workers=2)
    name = f"{framework.kind.lower()}.kubeflow.org/mnist"
    assert kubectl.apply(job) == f"{name} created\n"
    kubectl.wait(framework, "Created")
    kubectl.wait(framework, "Running")
    assert kubectl.apply(job) == f"{name} unchanged\n"
    training.end(space.name, pod_names(framework, workers=0)[0], 0)
    kubectl.wait(framework, "Succeeded")
    assert kubectl("delete", framework.plural, "mnist").startswith(name.replace("/", ' "'))

    def is_gone() -> bool:
        left = kubectl("get", "pods,services", "--selector=training.kubeflow.org/job-name=mnist")
        assert left == "", f"{left}"
        return True

    eventually("the end of pods and services", is_gone)


def test_get_shows_the_state_and_the_age(
    kubectl: TrainingKubectl, training: TrainingCluster, space: Space, framework: Framework
) -> None:
    kubectl.apply(training_job(framework, training))
    kubectl.wait(framework, "Running")
    header, row = kubectl("get", framework.plural).splitlines()
    assert header.split() == ["NAME", "STATE", "AGE"]
    assert row.split()[:2] == ["mnist", "Running"]
    training.end(space.name, pod_names(framework, workers=0)[0], 0)
    kubectl.wait(framework, "Succeeded")
    for asked in (framework.kind.lower(), f"{framework.plural}.v1.kubeflow.org"):
        row = kubectl("get", asked, "mnist", "--no-headers", "--output=wide")
        assert row.split()[:2] == ["mnist", "Succeeded"]


def test_get_finds_pods_and_services_by_label(
    kubectl: TrainingKubectl, training: TrainingCluster, framework: Framework
) -> None:
    kubectl.apply(training_job(framework, training, workers=2))
    leader, *workers = pod_names(framework, workers=2)

    def check() -> bool:
        for plural in ("pods", "services"):
            found = named(kubectl, plural, "job-name=mnist")
            assert found == [leader, *workers], f"{plural}: {found}"
        return True

    eventually("pods and services", check)
    assert named(kubectl, "pods", "job-name=mnist,training.kubeflow.org/job-role=master") == [
        leader
    ]
    assert named(kubectl, "pods", "replica-type=worker") == workers
    assert named(kubectl, "pods", "replica-index=1") == workers[1:]


def named(kubectl: TrainingKubectl, plural: str, selector: str) -> list[str]:
    found = kubectl("get", plural, f"--selector=training.kubeflow.org/{selector}", "--output=name")
    return sorted(line.split("/")[1] for line in found.splitlines())


def test_describe_shows_the_spec_the_conditions_and_the_events(
    kubectl: TrainingKubectl, training: TrainingCluster, framework: Framework
) -> None:
    kubectl.apply(training_job(framework, training))
    kubectl.wait(framework, "Running")
    leader = pod_names(framework, workers=0)[0]
    expected = [
        f"Kind:         {framework.kind}",
        "Restart Policy:  ExitCode",
        f"Message:               {framework.kind} mnist is running.",
        f"Reason:                {framework.kind}Running",
        "Replica Statuses:",
        "SuccessfulCreatePod",
        "SuccessfulCreateService",
        leader,
    ]

    def check() -> bool:
        described = kubectl("describe", framework.plural, "mnist")
        missing = [text for text in expected if text not in described]
        assert not missing, f"{missing} in {described}"
        return True

    eventually("the description", check)


def test_explain_knows_the_fields(kubectl: TrainingKubectl, framework: Framework) -> None:
    asked = f"{framework.kind.lower()}.spec.runPolicy.cleanPodPolicy"
    assert "Which pods the plan deletes" in kubectl("explain", asked)


def test_a_failed_job_says_why(
    kubectl: TrainingKubectl, training: TrainingCluster, space: Space, framework: Framework
) -> None:
    kubectl.apply(training_job(framework, training))
    training.end(space.name, "mnist-worker-0", 1)
    kubectl.wait(framework, "Failed")
    shown = kubectl("get", framework.plural, "mnist", "--no-headers")
    assert shown.split()[:2] == ["mnist", "Failed"]
    path = "jsonpath={.status.conditions[-1:].message}"
    assert "mnist-worker-0" in kubectl("get", framework.plural, "mnist", "--output", path)


def test_a_patch_suspends_and_resumes(
    kubectl: TrainingKubectl, training: TrainingCluster, framework: Framework
) -> None:
    kubectl.apply(training_job(framework, training))
    kubectl.wait(framework, "Running")
    for suspend, condition in (("true", "Suspended"), ("false", "Running")):
        patch = f'{{"spec":{{"runPolicy":{{"suspend":{suspend}}}}}}}'
        kubectl("patch", framework.plural, "mnist", "--type=merge", "--patch", patch)
        kubectl.wait(framework, condition)


def test_scale_sets_the_workers_of_a_pytorch_job(
    kubectl: TrainingKubectl, training: TrainingCluster
) -> None:
    kubectl.apply(training_job(PYTORCH, training))
    kubectl.wait(PYTORCH, "Running")
    for workers in (3, 1):
        said = kubectl("scale", "pytorchjob/mnist", f"--replicas={workers}")
        assert said == "pytorchjob.kubeflow.org/mnist scaled\n"

        def check(workers: int = workers) -> bool:
            found = named(kubectl, "pods", "job-name=mnist")
            assert found == pod_names(PYTORCH, workers=workers), f"{found}"
            return True

        eventually(f"{workers} workers", check)


def test_scale_is_refused_for_a_tf_job(kubectl: TrainingKubectl, training: TrainingCluster) -> None:
    """As the training operator's definition has it: only PyTorchJobs have the subresource."""
    kubectl.apply(training_job(TENSORFLOW, training))
    done = kubectl.run("scale", "tfjob/mnist", "--replicas=2")
    assert done.returncode == 1
    assert "NotFound" in done.stderr


def test_logs_of_all_replicas(
    kubectl: TrainingKubectl,
    training: TrainingCluster,
    space: Space,
    framework: Framework,
    with_logs: None,
) -> None:
    kubectl.apply(training_job(framework, training, workers=2))
    # A job is Running once its leader runs, and makes no more pods once its leader succeeds.
    eventually("all pods", lambda: len(named(kubectl, "pods", "job-name=mnist")) == 3)
    kubectl("wait", "pods", "--all", "--for=condition=Ready", TIMEOUT)
    leader, *workers = pod_names(framework, workers=2)
    training.end(space.name, leader, 0)
    assert kubectl("logs", leader, "--follow") == f"{leader} starts\n{leader} ends with 0\n"

    def check() -> bool:
        selector = "--selector=training.kubeflow.org/replica-type=worker"
        said = kubectl("logs", selector, f"--container={framework.container}", "--prefix")
        expected = {f"[pod/{name}/{framework.container}] {name} starts" for name in workers}
        assert set(said.splitlines()) == expected, said
        return True

    eventually("the logs of the workers", check)
