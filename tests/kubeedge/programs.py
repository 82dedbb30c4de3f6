"""The programs of KubeEdge, built by Go from the module of this folder.

python -m tests.kubeedge.programs      # prints their directory
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Final

from tests.cluster.binaries import GoModule, Unavailable

_PATH: Final = "github.com/kubeedge/kubeedge"
_MODULE: Final = GoModule(Path(__file__).parent, "kubeedge", _PATH, uses_c=True)
RELEASE: Final = _MODULE.release()


def obtain() -> Path:
    """The directory of cloudcore and edgecore. Raises: Unavailable"""
    if not shutil.which("gcc"):
        raise Unavailable("there is no gcc, which builds the SQLite of edgecore: install gcc")
    return _MODULE._replace(variables={f"{_PATH}/pkg/version.gitVersion": f"v{RELEASE}"}).obtain()


def crds() -> Path:
    """The directory of KubeEdge's CRDs, in Go's cache of modules. Raises: Unavailable"""
    answer = json.loads(_MODULE.run_go("mod", "download", "-json", _PATH))
    return Path(answer["Dir"]) / "build" / "crds"


if __name__ == "__main__":
    try:
        print(obtain())
    except Unavailable as unavailable:
        sys.exit(f"tests.kubeedge.programs: {unavailable}")
