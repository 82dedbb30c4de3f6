"""Calls kubeflow-training's TrainingClient. Runs in the environment of that package.

    python training_client_process.py KUBECONFIG NAMESPACE KIND

Each line of stdin is one call, in JSON: [method, {argument: value}]. Each line of stdout is what
the call returned, {"returned": …}, or the error that it raised, {"raised": type, "text": …}. An
argument `job` becomes the package's object of the kind, as a user makes it.
"""

import contextlib
import json
import sys

from kubeflow.training import TrainingClient, constants
from kubeflow.training.utils.utils import FakeResponse


def main() -> None:
    kubeconfig, namespace, kind = sys.argv[1:]
    client = TrainingClient(config_file=kubeconfig, namespace=namespace, job_kind=kind)
    model = constants.JOB_PARAMETERS[kind]["model"]
    for line in sys.stdin:
        method, arguments = json.loads(line)
        if "job" in arguments:
            arguments["job"] = client.api_client.deserialize(FakeResponse(arguments["job"]), model)
        if "expected_conditions" in arguments:
            arguments["expected_conditions"] = set(arguments["expected_conditions"])
        try:
            with contextlib.redirect_stdout(sys.stderr):  # logs are printed while they are followed
                returned = getattr(client, method)(**arguments)
            answer = {"returned": client.api_client.sanitize_for_serialization(returned)}
        except Exception as error:  # noqa: BLE001 - the test judges what a user would see
            answer = {"raised": type(error).__name__, "text": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
