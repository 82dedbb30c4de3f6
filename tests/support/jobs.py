"""One job resource of any kind as its user sees it: its status, and what was made for it.

For tests on the local cluster and on a real one, which differ in nothing that is done here.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

from edgeai.cli.api import Object, collection_of, path_of
from tests.support.waiting import eventually

T = TypeVar("T")

_TYPES: Final = (("v1", "Pod"), ("apps/v1", "Deployment"), ("v1", "Service"), ("v1", "Secret"))


class Api(Protocol):
    """What the clients of both clusters have."""

    def get(self, path: str) -> Object: ...

    def find(self, path: str) -> Object | None: ...

    def patch(self, path: str, patch: Mapping[str, Any]) -> Object: ...

    def delete(self, path: str, *, propagation: str = "") -> None: ...


class Job:
    """
    Args:
        create: how this cluster's client creates an object
        manifest: of the job resource, with its namespace
        timeout_s: how long its controllers, the collector included, may take for anything
        types: apiVersion and kind of all that is made for it
    """

    def __init__(
        self,
        api: Api,
        create: Callable[[Object], Object],
        manifest: Object,
        *,
        timeout_s: float,
        types: Iterable[tuple[str, str]] = _TYPES,
    ) -> None:
        self.api = api
        self._types = tuple(types)
        self.manifest = manifest
        self.name: str = manifest["metadata"]["name"]
        self.path = path_of(manifest)
        self._create = create
        self._timeout_s = timeout_s

    # ---- the job itself -------------------------------------------------------------------------

    def create(self) -> str:
        """Returns: its uid"""
        uid: str = self._create(copy.deepcopy(self.manifest))["metadata"]["uid"]
        return uid

    def edit(self, **fields: Any) -> None:
        """Change these fields of its spec, by merge patch."""
        self.api.patch(self.path, {"spec": fields})

    def delete(self, propagation: str = "") -> None:
        self.api.delete(self.path, propagation=propagation)

    def status(self) -> dict[str, Any]:
        return dict(self.api.get(self.path).get("status") or {})

    def condition(self, type_: str) -> Object:
        conditions = self.status().get("conditions") or ()
        return next((entry for entry in conditions if entry["type"] == type_), {})

    def wait_for(self, field: str, value: Any) -> None:
        """Until its status says so."""

        def check() -> bool:
            status = self.status()
            assert status.get(field) == value, f"status is {status}"
            return True

        self.eventually(f"{field} {value} of {self.name}", check)

    def wait_for_condition(self, type_: str, reason: str) -> None:
        """Until the condition has this reason."""

        def check() -> bool:
            condition = self.condition(type_)
            assert condition.get("reason") == reason, f"{type_} is {condition}"
            return True

        self.eventually(f"{type_} {reason} of {self.name}", check)

    # ---- what was made for it -------------------------------------------------------------------

    def made(self) -> dict[str, list[Object]]:
        """By "Pod/<worker>", "Deployment/<name>", and so on; without what is on its way out.

        More than one under a key: pods of one worker, of which one is to follow the other.
        """
        objects: dict[str, list[Object]] = defaultdict(list)
        for object_ in self._all_made():
            if "deletionTimestamp" not in object_["metadata"]:
                objects[_key(object_)].append(object_)
        return dict(objects)

    def uids(self) -> dict[str, str]:
        """Of `made`, by the same keys."""
        return {
            key: "+".join(sorted(object_["metadata"]["uid"] for object_ in objects))
            for key, objects in self.made().items()
        }

    def marks(self) -> dict[str, list[tuple[str, int]]]:
        """Uids and generations: what changes if anybody touches anything of `made`."""
        return {
            key: sorted((o["metadata"]["uid"], o["metadata"].get("generation", 0)) for o in objects)
            for key, objects in self.made().items()
        }

    def owners(self) -> set[str]:
        """Uids of the jobs that all there is was made for, also what is on its way out."""
        return {object_["metadata"]["labels"]["edgeai.io/uid"] for object_ in self._all_made()}

    def wait_for_owner(self, uid: str) -> None:
        """Until there is something made for the job of this uid, and nothing for one before it."""

        def check() -> bool:
            owners = self.owners()
            assert owners == {uid}, f"what there is belongs to {owners}"
            return True

        self.eventually(f"the end of every {self.name} but {uid}", check)

    def delete_made(self, key: str, propagation: str = "") -> None:
        (object_,) = self.made()[key]
        self.api.delete(path_of(object_), propagation=propagation)

    def wait_for_new(self, before: dict[str, str], *keys: str) -> None:
        """Until, of all that was there before, exactly `keys` are others, and every pod is up."""

        def check() -> bool:
            after = self.uids()
            others = {key for key, uid in before.items() if after.get(key) not in (None, uid)}
            is_done = others == set(keys) and after.keys() == before.keys()
            is_single = not any("+" in uid for uid in after.values())
            down = [pod["metadata"]["name"] for pod in self._all_made() if not _is_up(pod)]
            is_so = is_done and is_single and not down
            assert is_so, f"{others} of {after}, {down}"
            return True

        self.eventually(f"another {', '.join(keys)}", check)

    def wait_until_gone(self) -> None:
        """Until neither it is there nor anything that was made for it."""

        def check() -> bool:
            job = [self.path] if self.api.find(self.path) else []
            rest = [*job, *map(_key, self._all_made())]
            assert not rest, f"there is still {rest}"
            return True

        self.eventually(f"the end of {self.name}", check)

    def eventually(self, what: str, check: Callable[[], T | None]) -> T:
        """As `waiting.eventually`, with the patience that this cluster needs."""
        return eventually(what, check, timeout_s=self._timeout_s)

    def _all_made(self) -> list[Object]:
        objects: list[Object] = []
        for version, kind in self._types:
            metadata = {"namespace": self.manifest["metadata"]["namespace"]}
            collection = {"apiVersion": version, "kind": kind, "metadata": metadata}
            path = f"{collection_of(collection)}?labelSelector=edgeai.io/name={self.name}"
            # The items of a list do not say themselves what they are.
            identity = {"apiVersion": version, "kind": kind}
            objects += [identity | item for item in self.api.get(path)["items"]]
        return objects


def _key(object_: Object) -> str:
    metadata = object_["metadata"]
    worker = metadata["labels"].get("edgeai.io/worker")
    return f"{object_['kind']}/{worker or metadata['name']}"


def _is_up(object_: Object) -> bool:
    """A pod is that which is ready or has succeeded; anything else is up as soon as it is there."""
    if object_["kind"] != "Pod":
        return True
    status = object_.get("status") or {}
    conditions = {(one["type"], one["status"]) for one in status.get("conditions") or ()}
    return status.get("phase") == "Succeeded" or ("Ready", "True") in conditions
