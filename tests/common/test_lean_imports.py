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
        *("greenlet", "importlib.metadata", "rich", "statistics", "yaml"),
        *("edgeai.client", "edgeai.localcluster", "edgeai.worker"),
    },
    "localcontroller": {
        *("aiohttp", "globalmanager", "greenlet", "importlib.metadata", "numpy", "obstore"),
        *("opentelemetry", "rich", "sqlite_utils", "statistics", "yaml"),
        *("edgeai.client", "edgeai.kube", "edgeai.localcluster", "edgeai.worker"),
    },
}


def printed(code: str, **environment: str) -> list[str]:
    """The words that a process with this code prints."""
    command, environment = [sys.executable, "-c", code], {**os.environ, **environment}
    return subprocess.check_output(command, env=environment, text=True, timeout=60).split()


@pytest.mark.parametrize("process", UNUSED)
def test_what_is_not_used_at_the_start_is_not_loaded(process: str) -> None:
    code = (
        f"import sys, {process}.__main__\n"
        "from common.lean_imports import import_aiohttp, import_websockets\n"
        f"{'import_aiohttp()' if process == 'globalmanager' else ''}\n"
        "import_websockets()\n"
        f"import {process}.app\n"
        f"print(*sorted({UNUSED[process]} & set(sys.modules)))\n"
    )
    assert printed(code) == []


def test_a_lean_import_loads_no_cas() -> None:
    code = (
        "from common.lean_imports import import_aiohttp\n"
        "import_aiohttp()\n"
        "from aiohttp import connector\n"
        "print(*connector._SSL_CONTEXT_VERIFIED.get_ca_certs())"
    )
    assert printed(code) == []


def test_a_lean_import_reads_no_table_of_types(tmp_path: Path) -> None:
    table = tmp_path / "mime.types"
    table.write_text("text/x-of-the-system ofthesystem\n")
    code = (
        f"import mimetypes; mimetypes.knownfiles.append({str(table)!r})\n"
        "from common.lean_imports import import_aiohttp\n"
        "import_aiohttp()\n"
        "from aiohttp import web\n"
        "print(mimetypes.guess_type('x.ofthesystem')[0], mimetypes.guess_type('x.txt')[0])"
    )
    assert printed(code) == ["None", "text/plain"]


def test_the_metadata_of_packages_can_be_read_after_a_lean_import() -> None:
    code = (
        "from common.lean_imports import import_websockets\n"
        "import_websockets()\n"
        "import importlib.metadata, websockets\n"
        "print(importlib.metadata.version('websockets') == websockets.__version__)"
    )
    assert printed(code) == ["True"]


def test_the_environment_still_names_the_cas_of_the_system(tmp_path: Path) -> None:
    code = (
        "from common.lean_imports import import_aiohttp, system_tls\n"
        "import_aiohttp()\n"
        "print(len(system_tls().get_ca_certs()))"
    )
    assert printed(code, SSL_CERT_FILE=str(Authority(tmp_path).certificate)) == ["1"]
