"""`edgeai demo closed-loop`: a model that the edges' own hard examples improve, on this machine.

The demo starts a local cluster with three edges whose model has never seen two of the ten digits.
The cloud worker answers and keeps what they find hard. A second model learns it, and goes out in
waves. Then a broken model is published: the guard takes it back from the first edge, while another
one is out of contact.
"""

import functools
import hashlib
import http.server
import threading
import time
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from rich.console import Group
from rich.text import Text

from edgeai.cli.api import Object, path_of, wait_until
from edgeai.cli.environment import Environment
from edgeai.demo import stage
from edgeai.demo.closed_loop import classifier, data
from edgeai.demo.closed_loop.data import EDGES, Files
from edgeai.demo.closed_loop.manifests import Placement, objects
from edgeai.demo.faults import EdgeLine
from edgeai.demo.stage import NAMESPACE, DemoFailed, Look, Stage

SERVICE: Final = "digits"
LAB: Final = "lab"  # the node of the cloud worker, with a LocalController, which counts its Dataset
OFFLINE: Final = EDGES[-1]
ENOUGH: Final = 150  # hard examples; images come again and again
LABELS: Final = {"example.org/camera": "yes"}
QUICKLY: Final = ("--dataset-poll-s", "1")


class Outcome(msgspec.Struct, frozen=True):
    """What the demo has found. Accuracies are in 0..1, on images that no model has learned."""

    accuracy_before: float
    accuracy_after: float
    hard_samples: int
    """Different images that the second model has learned from."""
    waves: int
    """In which the second model went out."""
    rolled_back: bool
    """Whether every edge ended with the second model, and the absent one never had the broken
    one."""
    seconds: float
    """From the start of the first edge worker to the end."""


class ModelServer:
    """Offers the files of a directory over http on the loopback address."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> Self:
        handler = functools.partial(_Handler, directory=str(self._directory))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def source_of(self, file: Path) -> dict[str, str]:
        """The fields of a Model's spec for this file."""
        url = f"http://127.0.0.1:{self._server.server_address[1]}/{file.name}"
        return {"url": url, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """A demo prints its story alone."""


def story(on: Stage) -> Outcome:
    on.console.print(
        "[bold]Closed loop[/]: what the edges find hard becomes their next model, "
        "which goes out in waves"
    )
    files = Files(on.files)
    with EdgeLine() as line, ModelServer(files.models) as server:
        running, images = stage.start(
            on,
            data.write,
            "training a model that has never seen 8 and 9",
            edges=(*EDGES, LAB),
            tuning=line.tuning(OFFLINE, *QUICKLY),
            on_api=line.lead_to_cloud_of,
        )
        started_s = time.monotonic()
        loop = _Loop(on, running, files, server)
        before = classifier.accuracy(files.model(1), images.held_out)
        loop.collect()
        hard_samples = data.train_second(files, images.known)
        after = classifier.accuracy(files.model(2), images.held_out)
        on.tick(
            f"learned from {hard_samples} different hard images: accuracy on held-out images "
            f"{before:.1%} before, [bold green]{after:.1%}[/] after"
        )
        waves = loop.give_out(2)
        line.cut()
        on.tick(f"{OFFLINE} is cut off")
        data.write_broken(files)
        loop.take_back(3)
        line.mend()
        loop.require_second_model()
        stage.end(on, running, loop.service)
    return Outcome(
        accuracy_before=round(before, 4),
        accuracy_after=round(after, 4),
        hard_samples=hard_samples,
        waves=waves,
        rolled_back=True,
        seconds=round(time.monotonic() - started_s, 1),
    )


class _Loop:
    """The service of the demo and its Model, whose versions are the files of models."""

    def __init__(self, on: Stage, running: Environment, files: Files, server: ModelServer) -> None:
        self._on, self._api, self._files, self._server = on, running.api, files, server
        for edge in EDGES:
            self._api.patch(f"/api/v1/nodes/{edge}", {"metadata": {"labels": LABELS}})
        source = server.source_of(files.model(1))
        placement = Placement(
            files=files.directory,
            cloud_node=LAB,
            namespace=NAMESPACE,
            url=source["url"],
            sha256=source["sha256"],
        )
        manifests = objects(placement)
        self._model, _, self._dataset, _ = manifests
        self.service = stage.apply(on, running, manifests)

    def collect(self) -> None:
        def look(dataset: Object) -> Look:
            count = (dataset.get("status") or {}).get("numberOfSamples") or 0
            view = _line("Dataset", f"{count} hard images kept by the cloud worker")
            return Look(view, progress=count, has_ended=count >= ENOUGH)

        stage.watch(self._on, self._api, self._dataset, look)

    def give_out(self, version: int) -> int:
        """Publish a model and wait until every edge has it. Returns: the number of waves"""
        rollout = self._publish(version, until="Complete")
        self._on.tick(f"every edge has version {version}, after {rollout['waves']} waves")
        return int(rollout["waves"])

    def take_back(self, version: int) -> None:
        """Publish a broken model and wait until the guard has taken it back. Raises: DemoFailed"""
        rollout = self._publish(version, until="RolledBack")
        self._broken = rollout["version"]["number"]
        self._on.tick(f"version {version} was taken back: {rollout['message']}")
        service = self._api.get(path_of(self.service))
        self._on.detail(stage.as_the_api_holds_it(service, without=("conditions", "metrics")))

    def require_second_model(self) -> None:
        """Wait until every edge answers with the version to which the rollout has returned.

        Raises: DemoFailed if the edge that was cut off has ever answered with the broken version
        """

        def missing() -> str:
            status = self._api.get(path_of(self.service))["status"]
            versions = (status.get("fleet") or {}).get("versions")
            good = status["rollout"]["previous"]["number"]
            is_so = versions == [{"version": good, "nodes": len(EDGES)}]
            return "" if is_so else f"{versions}, not {good} on each edge"

        wait_until("return of every edge to the second model", missing, timeout_s=60)
        lines = stage.events(self._api.log(NAMESPACE, f"{SERVICE}-node-{OFFLINE}"))
        if any(line["version"] == self._broken for line in lines):
            raise DemoFailed(f"{OFFLINE} has answered with version {self._broken}")
        self._on.tick(f"{OFFLINE} is back, and has never had the broken version")

    def _publish(self, version: int, *, until: str) -> dict[str, Any]:
        spec = self._server.source_of(self._files.model(version))
        self._api.patch(path_of(self._model), {"spec": spec})
        waves = 0

        def look(service: Object) -> Look:
            nonlocal waves
            status = service.get("status") or {}
            rollout = status.get("rollout") or {}
            is_new = (rollout.get("version") or {}).get("sha256") == spec["sha256"]
            phase = rollout.get("phase", "-") if is_new else "-"
            waves = max(waves, rollout.get("wave", 0) if is_new else 0)
            if phase not in ("-", "Progressing", until):
                raise DemoFailed(f"the rollout is {phase}: {rollout.get('message')}")
            return Look(_view(version, phase, waves, status), status, has_ended=phase == until)

        service = stage.watch(self._on, self._api, self.service, look)
        return {**service["status"]["rollout"], "waves": waves}


def _view(version: int, phase: str, wave: int, status: dict[str, Any]) -> Group:
    versions = (status.get("fleet") or {}).get("versions") or ()
    shown = ", ".join(f"{each['version']} on {each['nodes']} edges" for each in versions)
    text = f"version {version}: {phase:<11} wave {wave or '-'}   versions: {shown or '-'}"
    return _line("CR", text)


def _line(subject: str, text: str) -> Group:
    return Group(Text.assemble((f"{subject}: ", "cyan"), text))  # a Text alone ends no line
