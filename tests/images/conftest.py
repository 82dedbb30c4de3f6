"""The images of both architectures, made once."""

from collections.abc import Mapping

import pytest

from tests.cluster import packages
from tests.cluster.binaries import Unavailable
from tests.cluster.images import MACHINES, Images
from tests.e2e.images import recipes
from tests.images.image import Image, unpacked

Built = Mapping[tuple[str, str], Image]


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """By architecture and name."""
    try:
        packages.obtain()
        archives = {each: Images(each).archive(recipes()) for each in MACHINES}
    except Unavailable as error:
        pytest.exit(f"images cannot be made here: {error}", pytest.ExitCode.USAGE_ERROR)
    return {
        (architecture, name): image
        for architecture, archive in archives.items()
        for name, image in unpacked(archive, tmp_path_factory.mktemp(architecture)).items()
    }
