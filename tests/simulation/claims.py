"""What a replica publishes of its sessions becomes what it serves (`oracle`, promise I13)."""

from typing import Final

from globalmanager.ha.claims import Claims, decode
from globalmanager.ha.presence import CLAIMS_FIELD, object_name
from tests.simulation.api import Api, Key, Object
from tests.simulation.cloud import SETTINGS, SimulatedManager
from tests.simulation.world import VirtualTime

WITHIN_S: Final = 15.0
"""Two requests may wait for their deadlines. Then the replica knows that it must write again."""


class PublishedClaims:
    def __init__(self, world: VirtualTime, api: Api) -> None:
        self._world, self._api = world, api
        self._differ_since: dict[str, float] = {}  # process -> when it had nothing more to write
        self._read: dict[str, tuple[Object, Claims]] = {}  # process -> the ConfigMap read last

    def problem(self, manager: SimulatedManager) -> str:
        """Returns: "" when the API has the claims of this replica, or the replica will write"""
        name = manager.process.name
        assert manager.core is not None
        presence = manager.core.membership.presence
        will_write = presence._change.is_set() or presence._lease is None
        own, published = manager.core.contacts.own_claims, self._published(name)
        if will_write or own == published:
            self._differ_since.pop(name, None)
            return ""
        since = self._differ_since.setdefault(name, self._world.now)
        if self._world.now <= since + WITHIN_S:
            return ""
        return f"{name} serves {sorted(own)}, and others know {sorted(published)}"

    def _published(self, name: str) -> Claims:
        process = name.rpartition("-")[2]
        key = Key("configmaps", SETTINGS.system_namespace, object_name(process))
        config_map = self._api.objects.get(key)
        if config_map is None:
            return {}
        before = self._read.get(name)
        if before is None or before[0] is not config_map:
            text = (config_map.get("data") or {}).get(CLAIMS_FIELD, "")
            before = self._read[name] = config_map, decode(text) if text else {}
        return before[1]
