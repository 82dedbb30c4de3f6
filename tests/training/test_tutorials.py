"""The tutorials that train, typed from their pages."""

import shutil
from pathlib import Path

import pytest

from edgeai.cli.runtimes import runtime
from tests.docs.tutorials import TUTORIALS, follow
from tests.system.test_tutorials import QUICK
from tests.training.jobs import PATIENCE_S

RUNTIMES = {
    "pytorch.md": "pytorch",
    "your-own-model.md": "pytorch",
    "tensorflow.md": "tensorflow",
}
WITHOUT = ("federated-learning.md", "elastic-training.md")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on the PATH")
@pytest.mark.parametrize("page", [*WITHOUT, *RUNTIMES])
def test_each_command_prints_what_the_tutorial_shows(
    page: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    environment = {}
    if page in RUNTIMES:
        request.getfixturevalue(RUNTIMES[page])  # installs it, or skips the test
        environment["XDG_CACHE_HOME"] = str(runtime(RUNTIMES[page]).cache.parents[1])
    assert follow(page, tmp_path, timeout_s=PATIENCE_S, **environment) == []
    assert not (tmp_path / "files").exists()


def test_every_tutorial_is_typed() -> None:
    pages = {each.name for each in TUTORIALS.glob("*.md")}
    assert pages == {*WITHOUT, *RUNTIMES, *QUICK, "README.md"}
