"""The manager and the worker SDK know the same algorithms of hard-example mining."""

import pytest

from edgeai.api.jointinferenceservice import Mining
from edgeai.api.workers import Parameter
from edgeai.worker import hard_example_mining
from globalmanager.kinds.edge import mining


def parameter(key: str) -> Parameter:
    return Parameter(key=key, value="1")


@pytest.mark.parametrize("name", hard_example_mining.ALGORITHMS)
def test_the_manager_knows_each_algorithm_and_parameter_of_the_sdk(name: str) -> None:
    given = Mining(name, [parameter(key) for key in hard_example_mining.PARAMETERS[name]])
    assert mining.unknown_parameters(given) == ""


def test_an_unknown_parameter_of_an_algorithm_is_reported() -> None:
    message = mining.unknown_parameters(Mining("Random", [parameter("sead")]))
    assert message == "Random does not know 'sead' (it knows: random_ratio, seed); passed on as is"
