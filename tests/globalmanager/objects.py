"""Objects for tests of the engine, as the API would answer them."""

from typing import Any

from edgeai.api.resources import Object, ResourceType

GADGETS = ResourceType("test.edgeai.io", "v1", "gadgets", "Gadget")


def make(
    name: str,
    *,
    version: int | str = 1,
    uid: str | None = None,
    namespace: str = "ns",
    type_: ResourceType = GADGETS,
    **fields: Any,
) -> Object:
    metadata: Object = {
        "name": name,
        "namespace": namespace,
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
    }
    metadata.update(fields.pop("metadata", {}))
    return {
        "apiVersion": type_.api_version,
        "kind": type_.kind,
        "metadata": metadata,
        **fields,
    }
