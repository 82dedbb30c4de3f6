"""What the API server serves decides on a component, unless the values do."""

import pytest

from edgeai.cli.install.errors import InstallError
from edgeai.cli.install.fitting import COMPONENT, fitting
from edgeai.cli.install.values import Values


@pytest.mark.parametrize(
    ("has_new", "has_old", "given", "components"),
    [
        (False, True, (), (COMPONENT,)),
        (False, True, ("nodeport",), ("nodeport", COMPONENT)),
        (False, True, (COMPONENT,), (COMPONENT,)),
        (True, True, (), ()),
        (True, True, (COMPONENT,), (COMPONENT,)),
        (True, False, (), ()),
    ],
)
def test_a_component_is_added_where_it_is_needed(
    has_new: bool, has_old: bool, given: tuple[str, ...], components: tuple[str, ...]
) -> None:
    found = fitting(Values(components=given), has_new=has_new, has_old=has_old)
    assert found.components == components


@pytest.mark.parametrize(
    ("has_new", "given", "problem"),
    [(False, (), "has neither policy/v1 nor"), (True, (COMPONENT,), "leave kubernetes-1.20 out")],
)
def test_what_cannot_work_is_refused(has_new: bool, given: tuple[str, ...], problem: str) -> None:
    with pytest.raises(InstallError, match=problem):
        fitting(Values(components=given), has_new=has_new, has_old=False)
