"""What edgeai promises of the content of Models.

- a node offers only content that a version of the Model has had in the API, byte for byte
- it never goes back to an older version by itself, also across a kill and a power cut
- what a worker has loaded last stays until a worker has loaded a newer version, or until content
  from before it returns: the API has taken it back
- the disk has no more bytes than the bound
- when faults are over, each node that reads the Model has the newest version, and nothing else
"""

import hashlib
from collections.abc import Mapping
from typing import Final, NamedTuple

from common import wire
from edgeai.ids import TaskKey
from localcontroller.content import ContentStore, ModelRecord
from tests.simulation.api import Api, Object
from tests.simulation.edge import MODEL_KEY, Controller
from tests.simulation.models import CHUNK_BYTES, MAX_BYTES, ModelServer
from tests.simulation.world import VirtualTime

MODELS: Final = "models.edgeai.io"
_SLACK_BYTES: Final = 2 * CHUNK_BYTES  # of records and marks


class _Offer(NamedTuple):
    uid: str
    generation: int
    """Of the newest version."""
    loaded: str
    """Digest of the version that a worker has loaded; "": none."""
    digests: tuple[str, ...]
    """Of all versions, newest first."""


class ModelOracle:
    """Each method that checks returns the promise that is broken; "": none is."""

    def __init__(self, world: VirtualTime, api: Api, server: ModelServer) -> None:
        self.world, self.api, self._server = world, api, server
        self._published: dict[str, dict[int, str]] = {}  # uid -> generation -> digest
        self._offers: dict[str, dict[TaskKey, _Offer]] = {}  # controller -> what it offers
        self._seen: dict[str, tuple[ModelRecord, ...]] = {}

    def published(self, model: Object) -> None:
        """The API has a new spec of a Model."""
        metadata, url = model["metadata"], model["spec"]["url"]
        published = self._published.setdefault(metadata["uid"], {})
        published[metadata["generation"]] = self._server.digest(url)

    def learn(self, other: "ModelOracle") -> None:
        """What another API has had counts here, too: a rollout may return to it."""
        for uid, versions in other._published.items():
            self._published.setdefault(uid, {}).update(versions)

    def forget(self, name: str) -> None:
        """The controller gets a new disk."""
        self._offers.pop(name, None)
        self._seen.pop(name, None)

    def loaded(self, controller: Controller, key: TaskKey, digest: str) -> None:
        """A worker was told that the node keeps what it has loaded."""
        offers, store = self._offers.get(controller.name, {}), controller.store
        # One that is older than what another worker has loaded changes nothing.
        if key in offers and store and store._records[key].loaded == digest:
            offers[key] = offers[key]._replace(loaded=digest)

    def problem(self, controller: Controller) -> str:
        """After each step of the controller."""
        store = controller.store
        if store is None or not controller.process.is_alive:
            return ""
        offers = self._offers.setdefault(controller.name, {})
        held = controller.ledger.view.task_versions if controller.ledger else {}
        for key in [key for key, offer in offers.items() if _uid(held, key) != offer.uid]:
            del offers[key]  # the node must not hold the Model any more
        records = tuple(store._records.values())
        if records == self._seen.get(controller.name):
            return ""
        self._seen[controller.name] = records
        for record in records:
            if problem := self._problem_of(store, record):
                return f"{controller.name}: {problem}"
        now = {record.key: record for record in records}
        for key, before in list(offers.items()):
            if store._uids is not None and store._uids.get(key) != before.uid:
                del offers[key]  # it has not held the Model in between
            elif problem := _regression(before, now.get(key)):
                return f"{controller.name}: {key} {problem}"
        for key, record in now.items():
            known = offers.get(key)
            digests = tuple(version.digest for version in record.versions)
            is_kept = known and known.uid == record.uid and known.loaded in digests
            loaded = known.loaded if known and is_kept else ""
            offers[key] = _Offer(record.uid, record.versions[0].generation, loaded, digests)
        used = sum(file.stat().st_size for file in store._directory.iterdir())
        if used > MAX_BYTES + _SLACK_BYTES:
            return f"{controller.name}: {used} bytes of content"
        return ""

    def _problem_of(self, store: ContentStore, record: ModelRecord) -> str:
        published = self._published.get(record.uid, {})
        for version in record.versions:
            # A rollout gives numbers of its own to versions, which the oracle of rollouts checks.
            of_number = [published.get(version.generation)]
            digests = published.values() if record.key == MODEL_KEY else of_number
            if version.digest not in digests:
                return f"{record.key} {version} was never published, but {published}"
            content = (store._directory / version.digest).read_bytes()
            if hashlib.sha256(content).hexdigest() != version.digest:
                return f"{record.key} {version} has other content"
        return ""

    def newest(self, model: Object) -> tuple[int, str]:
        """The generation of its spec, and the digest of the content."""
        return model["metadata"]["generation"], self._server.digest(model["spec"]["url"])

    # ---- at quiescence --------------------------------------------------------------------------

    def problem_at_end(
        self, controller: Controller, newest: Mapping[TaskKey, tuple[int, str] | None]
    ) -> str:
        """Args: newest: Model of the node -> version and digest that it must have"""
        store = controller.store
        assert store is not None
        wanted = set()
        for key, newest_version in newest.items():
            versions = store.versions(key)
            if [(each.generation, each.digest) for each in versions[:1]] != [newest_version]:
                return f"{controller.name} has {versions} of {key}, and not {newest_version}"
            wanted |= {each.digest for each in versions}
        files = {file.name for file in controller.disk.content.directory.iterdir()}
        others = {name for name in files - wanted if not name.endswith(".model")}
        return f"{controller.name} has {sorted(others)}, which no Model needs" if others else ""


def _uid(held: Mapping[TaskKey, wire.TaskVersion], key: TaskKey) -> str:
    return held[key].uid if key in held else ""


def _regression(before: _Offer, record: ModelRecord | None) -> str:
    if record is None:
        return f"had {before}, and has nothing"
    if record.uid != before.uid:
        return ""
    newest = record.versions[0].generation
    if newest < before.generation:
        return f"went back from version {before.generation} to {newest}"
    digests = [version.digest for version in record.versions]
    is_taken_back = digests[0] in before.digests
    if before.loaded and before.loaded not in digests and not is_taken_back:
        return f"lost {before.loaded}, which a worker has loaded, and has {digests}"
    return ""
