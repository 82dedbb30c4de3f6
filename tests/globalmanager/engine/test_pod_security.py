"""The controls of the Pod Security Standards: each forbids its fields, and nothing else."""

from typing import Any

import pytest

from edgeai.api.resources import Object
from globalmanager.engine.pod_security import ENFORCE, Level, level_of, violations

RESTRICTED_CONTEXT: Object = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def template(
    *, pod: Object | None = None, metadata: Object | None = None, **container: Any
) -> Object:
    """A pod template that the level restricted allows, with these changes."""
    one = {"name": "main", "image": "i", "securityContext": RESTRICTED_CONTEXT, **container}
    return {"metadata": metadata or {}, "spec": {"containers": [one], **(pod or {})}}


def context(**fields: Any) -> Object:
    return {"securityContext": {**RESTRICTED_CONTEXT, **fields}}


def with_context(kind: str, **fields: Any) -> Object:
    """A template with a second container of this kind."""
    other = {"name": "other", "image": "i", **context(**fields)}
    first = template()["spec"]["containers"]
    return template(pod={kind: [*(first if kind == "containers" else ()), other]})


C = "spec.containers[0]"
BASELINE: list[tuple[str, str, Object]] = [
    ("hostNetwork", "spec.hostNetwork", template(pod={"hostNetwork": True})),
    ("hostPID", "spec.hostPID", template(pod={"hostPID": True})),
    ("hostIPC", "spec.hostIPC", template(pod={"hostIPC": True})),
    (
        "hostProcess of the pod",
        "spec.securityContext.windowsOptions.hostProcess",
        template(pod={"securityContext": {"windowsOptions": {"hostProcess": True}}}),
    ),
    (
        "hostProcess of a container",
        f"{C}.securityContext.windowsOptions.hostProcess",
        template(**context(windowsOptions={"hostProcess": True})),
    ),
    ("privileged", f"{C}.securityContext.privileged", template(**context(privileged=True))),
    (
        "privileged init container",
        "spec.initContainers[0].securityContext.privileged",
        with_context("initContainers", privileged=True),
    ),
    (
        "privileged ephemeral container",
        "spec.ephemeralContainers[0].securityContext.privileged",
        with_context("ephemeralContainers", privileged=True),
    ),
    (
        "privileged second container",
        "spec.containers[1].securityContext.privileged",
        with_context("containers", privileged=True),
    ),
    (
        "capability",
        f"{C}.securityContext.capabilities.add",
        template(**context(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]})),
    ),
    (
        "hostPath",
        "spec.volumes[1].hostPath",
        template(
            pod={
                "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/"}}]
            }
        ),
    ),
    ("hostPort", f"{C}.ports[0].hostPort", template(ports=[{"hostPort": 80, "containerPort": 80}])),
    (
        "host of a probe",
        f"{C}.livenessProbe.httpGet.host",
        template(livenessProbe={"httpGet": {"host": "10.0.0.1", "port": 80}}),
    ),
    (
        "host of a lifecycle hook",
        f"{C}.lifecycle.preStop.tcpSocket.host",
        template(lifecycle={"preStop": {"tcpSocket": {"host": "10.0.0.1", "port": 80}}}),
    ),
    (
        "AppArmor annotation",
        "metadata.annotations[container.apparmor.security.beta.kubernetes.io/main]",
        template(
            metadata={
                "annotations": {"container.apparmor.security.beta.kubernetes.io/main": "unconfined"}
            }
        ),
    ),
    (
        "AppArmor field",
        f"{C}.securityContext.appArmorProfile.type",
        template(**context(appArmorProfile={"type": "Unconfined"})),
    ),
    (
        "SELinux type",
        "spec.securityContext.seLinuxOptions.type",
        template(pod={"securityContext": {"seLinuxOptions": {"type": "spc_t"}}}),
    ),
    (
        "SELinux user",
        f"{C}.securityContext.seLinuxOptions.user",
        template(**context(seLinuxOptions={"user": "root"})),
    ),
    (
        "SELinux role",
        f"{C}.securityContext.seLinuxOptions.role",
        template(**context(seLinuxOptions={"role": "sysadm_r"})),
    ),
    ("procMount", f"{C}.securityContext.procMount", template(**context(procMount="Unmasked"))),
    (
        "seccomp of the pod",
        "spec.securityContext.seccompProfile.type",
        template(pod={"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
    ),
    (
        "seccomp of a container",
        f"{C}.securityContext.seccompProfile.type",
        template(**context(seccompProfile={"type": "Unconfined"})),
    ),
    (
        "sysctl",
        "spec.securityContext.sysctls[0].name",
        template(pod={"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
    ),
]


def without(field: str) -> Object:
    return template(
        securityContext={key: value for key, value in RESTRICTED_CONTEXT.items() if key != field}
    )


RESTRICTED: list[tuple[str, str, Object]] = [
    (
        "volume type",
        "spec.volumes[0].nfs",
        template(pod={"volumes": [{"name": "a", "nfs": {"server": "s", "path": "/"}}]}),
    ),
    (
        "privilege escalation",
        f"{C}.securityContext.allowPrivilegeEscalation",
        without("allowPrivilegeEscalation"),
    ),
    ("runAsNonRoot", f"{C}.securityContext.runAsNonRoot", without("runAsNonRoot")),
    (
        "runAsNonRoot of the pod",
        "spec.securityContext.runAsNonRoot",
        template(pod={"securityContext": {"runAsNonRoot": False}}),
    ),
    ("runAsUser", f"{C}.securityContext.runAsUser", template(**context(runAsUser=0))),
    ("no seccomp", f"{C}.securityContext.seccompProfile.type", without("seccompProfile")),
    ("no drop", f"{C}.securityContext.capabilities.drop", without("capabilities")),
    (
        "a capability of the baseline",
        f"{C}.securityContext.capabilities.add",
        template(**context(capabilities={"drop": ["ALL"], "add": ["CHOWN"]})),
    ),
]
ALLOWED: list[tuple[str, Object]] = [
    ("plain", template()),
    ("false and empty", template(pod={"hostNetwork": False, "securityContext": None})),
    (
        "probe without host",
        template(readinessProbe={"httpGet": {"host": "", "port": 80}, "tcpSocket": None}),
    ),
    (
        "profiles of the node",
        template(
            **context(
                appArmorProfile={"type": "Localhost"},
                seccompProfile={"type": "Localhost"},
                seLinuxOptions={"type": "container_t", "level": "s0"},
                procMount="Default",
                runAsUser=1000,
                capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            ),
            metadata={
                "annotations": {
                    "container.apparmor.security.beta.kubernetes.io/main": "localhost/mine",
                    "note": "unconfined",
                }
            },
        ),
    ),
    (
        "set for the pod",
        template(
            pod={
                "securityContext": {
                    "runAsNonRoot": True,
                    "seccompProfile": {"type": "RuntimeDefault"},
                    "sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}],
                }
            },
            securityContext={
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        ),
    ),
    (
        "volumes",
        template(
            pod={
                "volumes": [
                    {"name": "a", "configMap": {}},
                    {"name": "b", "persistentVolumeClaim": {"claimName": "c"}},
                    {"name": "c", "secret": {}},
                    {"name": "d", "hostPath": None, "emptyDir": {}},
                    {"name": "e"},
                ]
            }
        ),
    ),
    (
        "windows",
        template(pod={"os": {"name": "windows"}}, securityContext={"runAsNonRoot": True}),
    ),
]


def fields(level: Level, pod: Any) -> list[str]:
    return [found.field for found in violations(level, pod)]


@pytest.mark.parametrize(
    ("field", "pod"), [row[1:] for row in BASELINE], ids=[r[0] for r in BASELINE]
)
def test_baseline_forbids_the_field(field: str, pod: Object) -> None:
    assert fields(Level.BASELINE, pod) == [field]
    assert field in fields(Level.RESTRICTED, pod)
    assert fields(Level.PRIVILEGED, pod) == []


@pytest.mark.parametrize(
    ("field", "pod"), [row[1:] for row in RESTRICTED], ids=[r[0] for r in RESTRICTED]
)
def test_restricted_forbids_the_field(field: str, pod: Object) -> None:
    assert fields(Level.RESTRICTED, pod) == [field]
    assert fields(Level.BASELINE, pod) == []


@pytest.mark.parametrize("pod", [row[1] for row in ALLOWED], ids=[row[0] for row in ALLOWED])
def test_the_strictest_level_allows(pod: Object) -> None:
    assert violations(Level.RESTRICTED, pod) == []


@pytest.mark.parametrize(
    "pod",
    [
        None,
        [],
        {"spec": "text"},
        {"spec": {"containers": {"a": 1}, "volumes": [None, 3], "securityContext": []}},
        {"spec": {"containers": [{"ports": "x", "securityContext": {"capabilities": {"add": 3}}}]}},
    ],
)
def test_an_odd_form_raises_nothing(pod: Any) -> None:
    violations(Level.RESTRICTED, pod)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (None, Level.BASELINE),
        ({}, Level.BASELINE),
        ({ENFORCE: "privileged"}, Level.PRIVILEGED),
        ({ENFORCE: "restricted"}, Level.RESTRICTED),
        ({ENFORCE: "Baseline"}, Level.RESTRICTED),
        ({ENFORCE: ""}, Level.RESTRICTED),
    ],
)
def test_the_label_of_the_namespace_gives_the_level(labels: Any, expected: Level) -> None:
    assert level_of(labels, Level.BASELINE) is expected


def test_a_message_names_the_field_the_fault_and_what_is_allowed() -> None:
    (found,) = violations(Level.BASELINE, BASELINE[-1][2])
    assert str(found).startswith(
        "spec.securityContext.sysctls[0].name must not be 'kernel.msgmax'; allowed: "
    )
