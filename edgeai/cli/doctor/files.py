"""Whether the Secrets and ConfigMaps that pods mount are there."""

from collections.abc import Iterator

from edgeai.api.objects import label_of
from edgeai.api.resources import CONFIG_MAPS, DEPLOYMENTS, SECRETS, Object
from edgeai.cli.doctor.facts import DAEMON_SETS, Facts
from edgeai.cli.doctor.finding import INSTALL, Note
from edgeai.cli.doctor.parts import CONTROLLER, MANAGER, NAME_LABEL


def files(facts: Facts) -> Iterator[Note]:
    """A pod whose Secret or ConfigMap is missing waits without a word in its status."""
    present = {
        "secret": {secret["metadata"]["name"] for secret in facts.of(SECRETS)},
        "configMap": {config_map["metadata"]["name"] for config_map in facts.of(CONFIG_MAPS)},
    }
    absent = [
        (owner, source, name)
        for owner in (*facts.of(DEPLOYMENTS), *facts.of(DAEMON_SETS))
        if (part := label_of(owner, NAME_LABEL)) == MANAGER or part.startswith(CONTROLLER)
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
