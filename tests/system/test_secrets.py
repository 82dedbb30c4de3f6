"""No secret appears where people look: logs, Events, REST, statuses."""

import base64
import json
import urllib.request
from pathlib import Path

from edgeai.cli import system
from edgeai.cli.environment import Environment
from edgeai.demo.joint_inference import story as demo
from edgeai.demo.stage import NAMESPACE
from tests.support.inference import counts_of
from tests.support.waiting import PATIENCE_S
from tests.system.digits import streaming


def secrets_of(running: Environment) -> set[str]:
    """Worker secrets, node tokens and the key, from the Secrets."""
    stored = [
        each
        for namespace in (NAMESPACE, system.NAMESPACE)
        for each in running.api.get(f"/api/v1/namespaces/{namespace}/secrets")["items"]
    ]
    tokens = [
        secret["data"][field]
        for secret in stored
        for field in ("token", "key", "WORKER_SECRET")
        if field in secret["data"]
    ]
    plain = {base64.b64decode(token).decode(errors="replace") for token in tokens}
    return set(tokens) | plain


def test_no_secret_is_shown(running: Environment, model_files: Path) -> None:
    with streaming(running, model_files) as stream:
        stream.wait_for_exact_counts(counts_of(stream.result()))
        secrets = secrets_of(running)
        assert len(secrets) >= 8, "worker secret, two tokens, key; each as text and in base64"
        shown = {
            str(path): path.read_text(errors="replace")
            for path in running.state_dir.rglob("*.log*")
            if path.is_file()
        }
        assert any("globalmanager" in path for path in shown), "no log was found"
        for kind in ("/api/v1/pods", "/apis/apps/v1/deployments", "/apis/apps/v1/replicasets"):
            shown[kind] = json.dumps(running.api.get(kind))
        shown["events"] = json.dumps(running.api.get("/api/v1/events"))
        shown["status"] = json.dumps(stream.status())
        for path in ("/api/v1/nodes", "/metrics", "/openapi.json"):
            with urllib.request.urlopen(running.rest_url() + path, timeout=PATIENCE_S) as answer:
                shown[path] = answer.read().decode()
        edge = f"http://{running.cluster.nodes[demo.EDGE_NODE]}:{system.STATUS_PORT}"
        for path in ("/api/v1/tasks", "/api/v1/workers", "/api/v1/link", "/metrics"):
            with urllib.request.urlopen(edge + path, timeout=PATIENCE_S) as answer:
                shown["edge" + path] = answer.read().decode()
        leaks = [where for where, text in shown.items() if any(one in text for one in secrets)]
        assert leaks == []
