"""KINDS holds every folder's kind, and each type belongs to one of them."""

from pathlib import Path

import pytest

from globalmanager import kinds
from globalmanager.kinds import KINDS, check_types


def test_every_folder_is_a_kind() -> None:
    folders = {path.parent.name for path in Path(kinds.__file__).parent.glob("*/*/__init__.py")}
    assert {kind.definition.singular for kind in KINDS} == folders


def test_joint_inference_is_served_in_both_groups() -> None:
    joint = next(kind for kind in KINDS if kind.definition.name == "JointInferenceService")
    assert [type_.api_version for type_ in joint.definition.types] == [
        "edgeai.io/v1alpha1",
        "sedna.io/v1alpha1",
    ]


def test_two_kinds_with_one_type_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"jointinferenceservices\.edgeai\.io"):
        check_types([*KINDS, *KINDS])
