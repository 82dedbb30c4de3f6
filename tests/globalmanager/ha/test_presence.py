"""What a replica has told the others when the answers of the API are lost."""

import asyncio
from typing import Any, Final

import msgspec
from aiohttp import web

from edgeai.ids import NodeName
from edgeai.kube.client import KubeClient
from globalmanager.ha import claims
from globalmanager.ha.contacts import Contacts
from globalmanager.ha.elector import Identity
from globalmanager.ha.presence import Presence
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.waiting import async_eventually

NODE: Final = NodeName("edge0")


class Shelf:
    """Keeps the Lease and the ConfigMap. After a write that it takes, it may answer 500."""

    def __init__(self, scripted: ScriptedApi, contacts: Contacts) -> None:
        self._scripted, self._contacts = scripted, contacts
        self.objects: dict[str, Any] = {}  # name of the resource -> the object
        self.loses_next = False
        scripted.others = [self.answer]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.split("/namespaces/default/")[1].split("/")
        resource, body = parts[0], await request.read()
        if request.method == "GET" and resource not in self.objects:
            return await self._scripted.failure(404, "NotFound")(request)
        if body:
            made = msgspec.json.decode(body)
            made["metadata"] |= {"uid": resource, "resourceVersion": str(len(self._scripted.seen))}
            self.objects[resource] = made
            if resource == "configmaps" and self.loses_next:
                self.loses_next = False
                self._contacts.release(NODE)  # the session ends before the writer tries again
                return await self._scripted.failure(500, "InternalError")(request)
        return await self._scripted.json(self.objects[resource])(request)

    def told(self) -> set[NodeName]:
        config_map = self.objects.get("configmaps") or {"data": {"claims": claims.encode({})}}
        return set(claims.decode(config_map["data"]["claims"]))


async def test_a_session_that_ends_while_its_claim_is_written_is_no_contact_for_others(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    """The API has the claim, and the replica does not know that."""
    contacts = Contacts()
    shelf = Shelf(scripted, contacts)
    presence = Presence(
        scripted_client,
        namespace="default",
        identity=Identity("gm0", "gm0"),
        duration_s=30.0,
        contacts=contacts,
        publish_interval_s=0.01,
    )
    running = asyncio.create_task(presence.run(), name="presence")
    await async_eventually("a Lease", lambda: "leases" in shelf.objects)
    shelf.loses_next = True
    contacts.claim(NODE, ledger="a")
    await async_eventually("the claim", lambda: "configmaps" in shelf.objects)
    await async_eventually("its end", lambda: shelf.told() == set())
    running.cancel()
    await asyncio.wait([running])
