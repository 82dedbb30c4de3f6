"""What only a real API server tells `edgeai doctor`: rights, and definitions as it keeps them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli.doctor.diagnosis import CHECKS, diagnose
from edgeai.cli.doctor.finding import Finding
from globalmanager.manifests.rbac import ACCOUNT, NAMESPACE
from tests.cluster.bad_input.unready import USER
from tests.cluster.controlplane import ControlPlane
from tests.cluster.rights import Right, Rights
from tests.support.waiting import eventually

MISSING: Final = Right("apps", "deployments", "create")


@pytest.fixture
def rights(plane: ControlPlane) -> Iterator[Rights]:
    """Of the GlobalManager's ServiceAccount: none."""
    plane.install_crds()
    rights = Rights(plane.client, f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
    rights.bind()
    yield rights
    rights.unbind()


def told(kubeconfig: Path, check: str) -> list[Finding]:
    return [each for each in asyncio.run(diagnose(kubeconfig, NAMESPACE)) if each.check == check]


def test_a_right_that_is_missing_is_named(plane: ControlPlane, rights: Rights) -> None:
    (finding,) = told(plane.kubeconfig, "rights")
    assert finding.level == "error"
    assert " more" in finding.message

    rights.grant()
    eventually("all rights", lambda: told(plane.kubeconfig, "rights")[0].level == "ok")
    rights.grant_all_but(MISSING)
    eventually("a missing right", lambda: told(plane.kubeconfig, "rights")[0].level == "error")
    (finding,) = told(plane.kubeconfig, "rights")
    assert finding.message.endswith(" may not create deployments.apps")
    assert "helm upgrade" in finding.remedy


def test_the_definitions_of_deploy_are_good(plane: ControlPlane) -> None:
    plane.install_crds()
    (finding,) = told(plane.kubeconfig, "definitions")
    assert finding.level == "ok", finding.message


def test_who_may_read_nothing_learns_only_that(plane: ControlPlane, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    plane.write_kubeconfig(kubeconfig, user=USER)
    found = asyncio.run(diagnose(kubeconfig, NAMESPACE))
    told_to_all = ("api", "kubernetes")  # every user may read the version of an API server
    assert {each.check: each.level for each in found} == {
        **dict.fromkeys(CHECKS, "unknown"),
        **dict.fromkeys(told_to_all, "ok"),
    }
    unread = [each for each in found if each.check not in told_to_all]
    assert all(f'"{USER}" cannot' in each.message for each in unread)
