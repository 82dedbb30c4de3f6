"""Go clients of our kinds: the program of tests/golang, which decodes objects as they do."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import msgspec

from edgeai.api.resources import Object
from tests.cluster.binaries import GoModule, print_path

_UPSTREAM: Final = "github.com/kubeflow/training-operator"
_MODULE: Final = GoModule(Path(__file__).parents[1] / "golang", "decoder", _UPSTREAM)


class Answer(msgspec.Struct):
    """What a client finds wrong with an object."""

    refused: str = ""
    """Why the client cannot decode it; "" when it can."""
    unknown: Sequence[str] = ()
    """Fields that its type does not have."""


class Decoder:
    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._requests, self._answers = requests, answers

    def decode(self, object_: Object) -> Answer:
        self._requests.write(msgspec.json.encode(object_) + b"\n")
        self._requests.flush()
        return msgspec.json.decode(self._answers.readline(), type=Answer)


def obtain() -> Path:
    """The program; the first build takes minutes. Raises: Unavailable"""
    return _MODULE.obtain() / "decoder"


@contextmanager
def running() -> Iterator[Decoder]:
    """Raises: Unavailable when the program cannot be built"""
    with subprocess.Popen([obtain()], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Decoder(process.stdin, process.stdout)
        process.stdin.close()


def upstream_definitions() -> Path:
    """The directory of the training operator's definitions. Raises: Unavailable"""
    answer = _MODULE.run_go("mod", "download", "-json", _UPSTREAM)
    return Path(json.loads(answer)["Dir"], "manifests", "base", "crds")


if __name__ == "__main__":
    print_path(obtain)
