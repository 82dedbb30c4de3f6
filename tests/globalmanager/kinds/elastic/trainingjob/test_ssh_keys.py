"""The SSH key pair of a TrainingJob, as OpenSSH reads it."""

import subprocess
from pathlib import Path

import pytest

from edgeai.ids import Uid
from globalmanager.kinds.elastic.trainingjob.workers import ssh_key_files

ROOT_KEY = b"k" * 32
UID = Uid("0c8f7a52-1f0e-4b1a-9d38-6a4b0e8e9f11")


def _files(uid: Uid = UID, root_key: bytes = ROOT_KEY) -> dict[str, str]:
    return ssh_key_files(root_key, uid, "default/job")


def test_each_job_has_one_key_and_every_manager_computes_the_same() -> None:
    public = _files()["id_rsa.pub"]
    assert _files()["id_rsa.pub"] == public
    assert _files(uid=Uid("another"))["id_rsa.pub"] != public
    assert _files(root_key=b"o" * 32)["id_rsa.pub"] != public


def test_openssh_derives_the_public_key_from_the_private_one(tmp_path: Path) -> None:
    files = _files()
    private = tmp_path / "id_rsa"
    private.write_text(files["id_rsa"])
    private.chmod(0o600)
    try:
        made = subprocess.run(
            ["ssh-keygen", "-y", "-f", str(private)], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        pytest.skip("ssh-keygen is not installed")
    assert made.stdout.split()[:2] == files["id_rsa.pub"].split()[:2]
    assert files["authorized_keys"] == files["id_rsa.pub"]
