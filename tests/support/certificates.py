"""Certificates for tests, made by the openssl command: an authority and what it issues."""

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

_CA_CONFIG: Final = """
[ca]
default_ca = own
[own]
database = {directory}/{name}.index
serial = {directory}/{name}.serial
new_certs_dir = {directory}
default_md = sha256
unique_subject = no
copy_extensions = copy
policy = any
[any]
commonName = optional
organizationName = optional
"""


LASTS: Final = timedelta(days=90)
"""From the beginning of an issued certificate to its end."""


class Pair(NamedTuple):
    """PEM files."""

    certificate: Path
    key: Path


class Authority:
    """A CA with its files in `directory`; each has a key of its own, whatever its name."""

    def __init__(
        self, directory: Path, name: str = "ca", *, subject: str = "/CN=test-ca", days: int = 2
    ) -> None:
        self._directory, self._name = directory, name
        self.certificate = directory / f"{name}.crt"
        self._key = new_key(directory / f"{name}.key")
        openssl(
            *("req", "-x509", "-new", "-key", str(self._key), "-subj", subject, "-days", str(days)),
            *("-addext", "basicConstraints=critical,CA:TRUE", "-out", str(self.certificate)),
            *("-addext", "keyUsage=critical,keyCertSign"),
        )

    def issue(
        self,
        name: str,
        *,
        subject: str = "/O=test",
        alternative: str = "",
        usage: str = "clientAuth",
        lasts: timedelta = timedelta(days=1),
    ) -> Pair:
        """A certificate and its key.

        Args:
            name: of the files
            alternative: its subjectAltName, like "DNS:node-1,DNS:node-2"; "": none
            usage: its extendedKeyUsage
            lasts: negative: it has expired
        """
        certificate, request, config, index = (
            self._directory / f"{name}.{suffix}" for suffix in ("crt", "csr", "conf", "index")
        )
        key = new_key(self._directory / f"{name}.key")
        extensions = [f"extendedKeyUsage={usage}", "basicConstraints=critical,CA:FALSE"]
        extensions += [f"subjectAltName={alternative}"] if alternative else []
        added = [word for extension in extensions for word in ("-addext", extension)]
        openssl(*("req", "-new", "-key", str(key), "-subj", subject, "-out", str(request)), *added)
        config.write_text(_CA_CONFIG.format(directory=self._directory, name=name))
        index.write_text("")
        end = datetime.now(UTC) + lasts
        openssl(
            *("ca", "-batch", "-notext", "-config", str(config), "-in", str(request)),
            *("-create_serial", "-cert", str(self.certificate), "-keyfile", str(self._key)),
            *("-startdate", _time(end - LASTS), "-enddate", _time(end)),
            *("-out", str(certificate)),
        )
        return Pair(certificate, key)


def _time(at: datetime) -> str:
    return at.strftime("%Y%m%d%H%M%SZ")


def new_key(path: Path) -> Path:
    path.touch(mode=0o600)
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path))
    return path


def openssl(*arguments: str) -> None:
    done = subprocess.run(
        ["openssl", *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
