"""Whether the Secrets and ConfigMaps that pods mount are there."""

from collections.abc import Iterator

from edgeai.api.resources import Object
from edgeai.cli.doctor.facts import Facts
from edgeai.cli.doctor.finding import INSTALL, Note, readable
from edgeai.cli.doctor.parts import CONTROLLER, MANAGER, name_label


def files(facts: Facts) -> Iterator[Note]:
    """A pod whose Secret or ConfigMap is missing waits without a word in its status."""
    present = {
        "secret": {secret["metadata"]["name"] for secret in readable(facts.secrets)},
        "configMap": {config_map["metadata"]["name"] for config_map in readable(facts.config_maps)},
    }
    absent = [
        (owner, source, name)
        for owner in (*readable(facts.deployments), *readable(facts.daemon_sets))
        if name_label(owner) == MANAGER or name_label(owner).startswith(CONTROLLER)
        for source, name in mounted(owner)
        if name not in present[source]
    ]
    for owner, source, name in absent:
        kind = "Secret" if source == "secret" else "ConfigMap"
        message = f"{kind} {facts.namespace}/{name} is missing"
        yield "error", f"{message}, which the pods of {owner['metadata']['name']} mount", INSTALL
    if not absent:
        yield "ok", "all Secrets and ConfigMaps that pods mount are there"


def mounted(owner: Object) -> Iterator[tuple[str, str]]:
    """("secret" or "configMap", name) of each volume that must be there before a pod starts."""
    for volume in owner["spec"]["template"]["spec"].get("volumes") or ():
        sources = [volume, *((volume.get("projected") or {}).get("sources") or ())]
        for entry in sources:
            for source, field in (("secret", "secretName"), ("configMap", "name")):
                reference = entry.get(source) or {}
                name = reference.get(field) or reference.get("name")
                if name and not reference.get("optional"):
                    yield source, name
