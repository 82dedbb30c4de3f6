"""What a node of KubeEdge has of the API while the cloud is away, as one program on the node.

    python3 metamanager.py FILE PORT

KubeEdge's edged is a kubelet that asks the metamanager of its node, which keeps pods, Secrets and
ConfigMaps in SQLite. Here a kubelet asks this program. FILE is JSON: plural of a type -> objects.
No token of a ServiceAccount is given out, because edgecore deletes tokens when it starts offline.
Nothing is written: the node says again what it has to say once it reaches the cloud.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

_WATCH_S: Final = 3600.0
_VERSION: Final = "1"


class Objects:
    """Args: by_type: plural -> objects"""

    def __init__(self, by_type: dict[str, list[dict[str, Any]]]) -> None:
        self._by_type = by_type

    def kind(self, path: str) -> str:
        """Of a collection's objects; "" where there are none of the type."""
        found = self._by_type.get(path.rpartition("/")[2])
        return str(found[0]["kind"]) if found else ""

    def chosen(self, path: str, selector: str) -> tuple[list[dict[str, Any]], str]:
        """The objects of a path of the API, and the name in it; "": the path is a collection."""
        words = path.strip("/").split("/")
        words = words[2:] if words[0] == "api" else words[3:]
        namespace = ""
        if words[0] == "namespaces" and len(words) > 2:
            namespace, words = words[1], words[2:]
        plural, name = words[0], words[1] if len(words) > 1 else ""
        found = self._by_type.get(plural, [])
        if namespace:
            found = [each for each in found if each["metadata"]["namespace"] == namespace]
        if name:
            found = [each for each in found if each["metadata"]["name"] == name]
        for term in filter(None, selector.split(",")):
            field, _, value = term.partition("=")  # or "!="
            part, key = field.rstrip("!").split(".")
            is_wanted = not field.endswith("!")
            found = [each for each in found if (each[part].get(key) == value) is is_wanted]
        return found, name


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    objects: Objects

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        found, name = self.objects.chosen(url.path, query.get("fieldSelector", ""))
        if "sendInitialEvents" in query:
            self._refuse(422, "Invalid")  # the kubelet lists instead
        elif query.get("watch") in ("true", "1"):
            self._hold(float(query.get("timeoutSeconds", _WATCH_S)))
        elif not name:
            self._list(url.path, found)
        elif found:
            self._answer(200, found[0])
        else:
            self._refuse(404, "NotFound")

    def _list(self, path: str, found: list[dict[str, Any]]) -> None:
        kind = self.objects.kind(path)
        if not kind:
            return self._refuse(404, "NotFound")
        head = {"apiVersion": "v1", "kind": f"{kind}List"}
        metadata = {"resourceVersion": _VERSION}
        return self._answer(200, {**head, "metadata": metadata, "items": found})

    def do_PATCH(self) -> None:
        """Of a status: the answer is the object as it was."""
        self._read()
        found, _ = self.objects.chosen(urlsplit(self.path).path, "")
        if found:
            self._answer(200, found[0])
        else:
            self._refuse(404, "NotFound")

    def do_PUT(self) -> None:
        self.do_PATCH()

    def do_POST(self) -> None:
        """There are no tokens without the cloud, and the Node is there. All else is forgotten."""
        self._read()
        if self.path.endswith("/token"):
            self._refuse(403, "Forbidden")
        elif self.path.endswith("/nodes"):
            self._refuse(409, "AlreadyExists")
        else:
            self._answer(201, {"apiVersion": "v1", "kind": "Status", "status": "Success"})

    def log_message(self, *_: object) -> None:
        """Not each request."""

    def _hold(self, seconds: float) -> None:
        """A watch: nothing changes."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        time.sleep(seconds)
        self.wfile.write(b"0\r\n\r\n")

    def _read(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _refuse(self, code: int, reason: str) -> None:
        status = {"apiVersion": "v1", "kind": "Status", "status": "Failure"}
        self._answer(code, {**status, "code": code, "reason": reason, "message": reason})

    def _answer(self, code: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main(file: str, port: str) -> None:
    Handler.objects = Objects(json.loads(Path(file).read_text()))
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
