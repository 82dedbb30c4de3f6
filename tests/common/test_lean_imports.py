"""What a manager does not use at its start is not loaded: each of these modules takes memory, by
which nodes are chosen, and time until the process is ready.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.certificates import Authority

UNUSED = {
    "globalmanager": {
        *("cryptography", "globalmanager.manifests", "jinja2", "localcontroller", "opentelemetry"),
        *("greenlet", "rich", "yaml"),
        *("edgeai.client", "edgeai.localcluster", "edgeai.worker"),
    },
    "localcontroller": {
        *("aiohttp", "globalmanager", "greenlet", "numpy", "obstore", "opentelemetry", "rich"),
        *("sqlite_utils", "yaml"),
        *("edgeai.client", "edgeai.kube", "edgeai.localcluster", "edgeai.worker"),
    },
}


@pytest.mark.parametrize("process", UNUSED)
def test_what_is_not_used_at_the_start_is_not_loaded(process: str) -> None:
    lean = "from common.lean_aiohttp import import_aiohttp; import_aiohttp()"
    code = (
        f"import sys, {process}.__main__\n"
        f"{lean if process == 'globalmanager' else ''}\n"
        f"import {process}.app\n"
        f"print(*sorted({UNUSED[process]} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []


def test_a_lean_import_loads_no_cas() -> None:
    code = (
        "from common.lean_aiohttp import import_aiohttp\n"
        "import_aiohttp()\n"
        "from aiohttp import connector\n"
        "print(*connector._SSL_CONTEXT_VERIFIED.get_ca_certs())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_environment_still_names_the_cas_of_the_system(tmp_path: Path) -> None:
    code = (
        "from common.lean_aiohttp import import_aiohttp, system_tls\n"
        "import_aiohttp()\n"
        "print(len(system_tls().get_ca_certs()))"
    )
    environment = {**os.environ, "SSL_CERT_FILE": str(Authority(tmp_path).certificate)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"
