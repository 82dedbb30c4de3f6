"""What `edgeai install` prints when it applies nothing."""

from edgeai import times
from edgeai.api.resources import Object
from edgeai.cli.install import credentials
from edgeai.cli.install.rendering import definitions, in_order, render
from edgeai.cli.install.values import Values


def printed(values: Values, *, with_secrets: bool) -> tuple[list[Object], list[str]]:
    """The objects, and notes for the user.

    Secrets are left out unless they are asked for: what is printed ends up in terminals, logs and
    repositories, and would differ with each call.
    """
    objects = [*render(values), *definitions(values)]
    needed = credentials.needed(objects)
    if not with_secrets:
        names = ", ".join(f"{kind} {name}" for name, kind in needed.items())
        note = f"left out, and needed in namespace {values.namespace}: {names}"
        return in_order(objects), [f"{note}; --apply and --with-secrets make them"]
    made = credentials.make(objects, values.namespace, times.utc_now())
    notes = ["warning: what is printed holds private keys; keep it where nobody else reads it"]
    absent = needed.keys() - {each["metadata"]["name"] for each in made}
    notes += [f"{needed[name]} {name} is yours to make" for name in sorted(absent)]
    return in_order([*objects, *made]), notes
