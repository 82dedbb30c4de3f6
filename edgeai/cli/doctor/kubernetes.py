"""Whether edgeai supports the version of the cluster's Kubernetes."""

from collections.abc import Iterator
from typing import Final

from edgeai.cli.doctor.facts import Facts
from edgeai.cli.doctor.finding import Note
from edgeai.kube.user import Version

OLDEST: Final = Version(1, 30)


def kubernetes(facts: Facts) -> Iterator[Note]:
    version = facts.version
    if version is None or version.major == 0:  # as builds without a release tell
        yield "ok", "the API server does not report its version"
    elif version < OLDEST:
        message = f"Kubernetes {version} is older than {OLDEST}, the oldest that edgeai supports"
        yield "error", message, "upgrade the cluster"
    else:
        yield "ok", f"Kubernetes {version}"
