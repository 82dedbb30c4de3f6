"""Writes docs/rest.md from the routes of the REST API and the types of its answers.

python docs/rest.py
"""

from pathlib import Path
from typing import Any, Final

from globalmanager.rest.api import Api
from globalmanager.rest.routes import Route, document

PAGE: Final = Path(__file__).with_suffix(".md")
INTRODUCTION: Final = """\
# REST

Written by `docs/rest.py` from the routes of the GlobalManager; do not edit.

The GlobalManager serves nodes and job resources from its caches at `--http-address`. Every request
is a `GET`. To write, use the Kubernetes API or the [Python client](client.md).

## Who may read

A caller sends a token of the API server. The GlobalManager checks the caller's rights: `list` or
`get` of the resource, namespace and name in the request, `list` of nodes for `/api/v1/nodes`, and
`get` of the path for `/metrics`. A list over several groups needs the right to each of them, or
`?group=` with one.

```text
TOKEN=$(kubectl --namespace default create token NAME)  # may read the jobs
curl --header "Authorization: Bearer $TOKEN" \\
  http://GLOBALMANAGER:9001/api/v1/namespaces/default/jointinferenceservices
```

Without a token the answer is 401, without the right 403. The GlobalManager caches answers of the
API server: a valid token for 60 s, a right for 30 s, a refusal for 10 s. `/healthz`, `/readyz` and
`/openapi.json` need no token. The port uses plain HTTP: put a proxy with TLS in front of it if
tokens leave the cluster. `--http-auth none` disables the check, and is allowed only for a loopback
address, as on a laptop. REST then answers only requests to a loopback name (`127.0.0.1`, `[::1]`,
`localhost`), so that no web page can read it under its own name.

Lists take `limit` and `continue`, like those of Kubernetes; without `limit` the whole list is
streamed. A client that reads nothing for 10 s loses its connection.

## Paths
"""
END: Final = """\
## LocalController

A LocalController has a read-only address too, `--status-address`, on the loopback of the node and
without a token. It serves `/healthz`, `/readyz`, `/metrics`, `/api/v1/tasks`, `/api/v1/workers`
and `/api/v1/link`, which says whether there is a session, and why the last one ended.
"""


def page() -> str:
    told = document(_routes(), version="")
    lines = ["| path | answers | type | parameters | other statuses |", "|---|---|---|---|---|"]
    parameters: dict[str, str] = {}
    statuses: dict[str, str] = {}
    for path, operations in told["paths"].items():
        route = operations["get"]
        parameters |= {
            _shown(parameter): parameter["description"] for parameter in route["parameters"]
        }
        statuses |= {each: answer["description"] for each, answer in route["responses"].items()}
        lines.append(_row(path, route))
    lines += ["", "| parameter | meaning |", "|---|---|"]
    lines += [f"| {name} | {meaning} |" for name, meaning in parameters.items()]
    told_by = ", ".join(f"{status} {statuses[status]}" for status in sorted(statuses))
    why = "[ErrorView](#errorview) says why, and [ReadyView](#readyview) of `/readyz`."
    lines += ["", f"Statuses: {told_by}. {why}", ""]
    lines += ["`/openapi.json` describes all of it for programs.", "", "## Types", ""]
    lines += ["`object` is a resource as the Kubernetes API has it, without `managedFields`.", ""]
    for name, schema in told["components"]["schemas"].items():
        lines += _described(name, schema)
    return INTRODUCTION + "\n" + "\n".join(lines) + "\n" + END


def _routes() -> tuple[Route, ...]:
    nothing: Any = None  # the routes are the same, whatever is behind them
    parts = ("access", "cache", "sessions", "contacts", "replica", "registry")
    return Api(**dict.fromkeys(parts, nothing), types=(), version="").routes


def _row(path: str, route: dict[str, Any]) -> str:
    answers = dict(route["responses"])
    (content,) = answers.pop("200")["content"].values()
    cells = [
        f"`{path}`",
        route["summary"],
        _type(content["schema"]),
        " ".join(_shown(parameter) for parameter in route["parameters"]),
        ", ".join(sorted(answers)),
    ]
    return f"| {' | '.join(cells)} |"


def _shown(parameter: dict[str, Any]) -> str:
    name = parameter["name"]
    return f"`?{name}=`" if parameter["in"] == "query" else f"`{{{name}}}`"


def _described(name: str, schema: dict[str, Any]) -> list[str]:
    text = " ".join(schema.get("description", "").split())
    lines = [f"### {name}", "", *([text, ""] if text else []), "| field | type |", "|---|---|"]
    lines += [f"| `{field}` | {_type(each)} |" for field, each in schema["properties"].items()]
    return [*lines, ""]


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    return "time" if schema.get("format") == "date-time" else str(schema["type"])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
