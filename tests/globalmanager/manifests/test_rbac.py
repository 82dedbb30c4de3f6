"""The rights that follow from what a kind declares: enough for that, and not more."""

from typing import Any

import msgspec
import pytest

from edgeai.api.definitions import Definition
from edgeai.api.resources import DEPLOYMENTS, PODS, SERVICES, ResourceType
from globalmanager.contract import Kind, Plan, UpdateRule
from globalmanager.manifests import rbac

TRAINS = ResourceType("example.io", "v1", "trains", "Train")
SCALES = ResourceType("example.io", "v1", "scales", "Scale")
READ = {"get", "list", "watch"}


class Empty(msgspec.Struct):
    pass


def kind(*types: ResourceType, **fields: Any) -> Kind:
    names = Definition(types=types or (TRAINS,), spec=Empty, status=Empty)
    return Kind(
        definition=names,
        read=lambda _object: None,
        plan=lambda _observed, _now: Plan(),
        **fields,
    )


def verbs(rules: list[rbac.Rule], group: str, resource: str) -> set[str]:
    return {
        verb
        for rule in rules
        if group in rule["apiGroups"] and resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, READ, id="reads"),
        pytest.param({"deletes_itself": True}, READ | {"delete"}, id="deletes itself"),
    ],
)
def test_of_a_job_resource_only_the_status_is_written(
    fields: dict[str, Any], expected: set[str]
) -> None:
    rules = rbac.cluster_rules([kind(**fields)])
    assert verbs(rules, "example.io", "trains") == expected
    assert verbs(rules, "example.io", "trains/status") == {"patch"}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (UpdateRule.REPLACE, READ | {"create", "update", "delete"}),
        (UpdateRule.RECREATE, READ | {"create", "delete"}),
        (UpdateRule.KEEP, READ | {"create", "delete"}),
        (UpdateRule.REFUSE, READ | {"create", "delete"}),
    ],
)
def test_only_what_is_replaced_is_updated(rule: UpdateRule, expected: set[str]) -> None:
    rules = rbac.cluster_rules([kind(owns={SERVICES: rule})])
    assert verbs(rules, "", "services") == expected
    assert verbs(rules, "", "pods") == {"list", "watch"}
    assert verbs(rules, "example.io", "trains/finalizers") == {"update"}


def test_two_kinds_that_own_a_type_have_the_rights_of_both() -> None:
    one, other = kind(owns={PODS: UpdateRule.KEEP}), kind(SCALES, owns={PODS: UpdateRule.REPLACE})
    assert "update" in verbs(rbac.cluster_rules([one, other]), "", "pods")
    assert "update" not in verbs(rbac.cluster_rules([one]), "", "pods")


def test_what_lies_between_a_child_and_its_pods_is_watched() -> None:
    rules = rbac.cluster_rules([kind(owns={DEPLOYMENTS: UpdateRule.REPLACE})])
    assert verbs(rules, "apps", "replicasets") == {"list", "watch"}


def test_versions_of_one_resource_are_one_rule() -> None:
    old = ResourceType("example.io", "v1alpha1", "trains", "Train")
    assert rbac.cluster_rules([kind(TRAINS, old)]) == rbac.cluster_rules([kind(TRAINS)])


def test_a_scaler_is_patched_to_adopt_it_which_takes_the_right_to_delete_it() -> None:
    rules = rbac.cluster_rules([kind(scalers={SCALES: lambda _object: ""}), kind(SCALES)])
    assert verbs(rules, "example.io", "scales") == READ | {"patch", "delete"}


def test_what_a_kind_patches_of_another_kind_is_patched_and_not_deleted() -> None:
    rules = rbac.cluster_rules([kind(patches=frozenset({SCALES})), kind(SCALES)])
    assert verbs(rules, "example.io", "scales") == READ | {"patch"}
    assert verbs(rules, "example.io", "trains") == READ


def test_the_manager_has_the_rights_of_the_roles_that_a_kind_creates() -> None:
    granted = {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]}
    rules = rbac.cluster_rules([kind(role_rules=(granted,))])
    assert granted in rules
    assert granted not in rbac.cluster_rules([kind()])


@pytest.mark.parametrize("executes", [True, False])
def test_commands_run_in_pods_only_where_a_kind_says_so(executes: bool) -> None:
    """Both verbs: which of them a WebSocket needs depends on the version of the API server."""
    rules = rbac.cluster_rules([kind(executes=executes)])
    assert verbs(rules, "", "pods/exec") == ({"create", "get"} if executes else set())
