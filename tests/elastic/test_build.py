"""What the build of Horovod says where it cannot be made."""

import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def test_a_machine_without_debians_packages_is_told_what_is_missing(tmp_path: Path) -> None:
    """A machine without Debian's tools and without a cache."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.elastic.horovod"],
        capture_output=True,
        text=True,
        check=False,
        cwd=CHECKOUT,
        env={"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)},
    )
    assert done.returncode == 1
    assert "Debian's packages python3-torch libtorch-dev" in done.stderr
    assert "install them, or run as root on a Debian 12" in done.stderr
    assert "Traceback" not in done.stderr
