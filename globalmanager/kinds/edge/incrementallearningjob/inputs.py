"""Brings the samples of a round, and a copy of its base model, into a worker's pod.

An init container does it, with the image of the worker, which has Python: so it needs no further
image, and the worker finds a file with nothing but its samples, as Sedna's library expects it. The
base model is copied because that library saves into its directory, and inputs are read-only.
"""

import json
import posixpath
from typing import Any, Final

import msgspec

from edgeai.api.incrementallearningjob import Round, Stage
from globalmanager.kinds.shared import storage
from globalmanager.kinds.shared.pods import literal

DIRECTORY: Final = "/edgeai-round"
_VOLUME: Final = "edgeai-round"
_EXTENSIONS: Final = ("csv", "jsonl")

# Arguments: the data, its format ("" for the ending of its name), JSON of [start, end] of samples,
# the file for them; then the base model and its copy, or nothing. What a sample is, is said in
# localcontroller/hooks/samples.py.
_PROGRAM: Final = r"""
import csv, json, os, shutil, sys
data, form, ranges, target, *models = sys.argv[1:]
form = form or ("dir" if os.path.isdir(data) else data.rpartition(".")[2])
def records(lines):
    read = []
    def noted():
        for line in lines:
            read.append(line)
            yield line
    for row in csv.reader(noted()):
        text = "".join(read)
        read.clear()
        if text.strip():
            yield text
def samples(file):
    if form == "csv":
        found = records(file)
        target.write(next(found, ""))
        return found
    return (line for line in file if line.strip()) if form == "jsonl" else file
def files():
    paths = (os.path.join(place, name) for place, _, names in os.walk(data) for name in names)
    paths = (path for path in paths if os.path.isfile(path) and not os.path.islink(path))
    # As they came to this disk: a copy may keep an old time of modification.
    order = lambda path: (os.stat(path).st_ctime_ns, path)
    return (path + "\n" for path in sorted(paths, key=order))
def chosen(found):
    count = 0
    for sample in found:
        if any(start <= count < end for start, end in ranges):
            target.write(sample if sample.endswith("\n") else sample + "\n")
        count += 1
    wanted = max(end for _, end in ranges)
    if count < wanted:
        sys.exit(f"{data} has {count} samples, and the round needs {wanted}: were some removed?")
ranges = json.loads(ranges)
csv.field_size_limit(2**31 - 1)
text = {"errors": "surrogateescape", "newline": "\n"}  # a line ends with LF alone
with open(target, "w", encoding="utf-8", **text) as target:
    if form == "dir":
        chosen(files())
    else:
        if form == "csv":
            text["newline"] = ""  # CR alone ends a record, too
        with open(data, encoding="utf-8-sig", **text) as file:
            chosen(samples(file))
if models and not os.path.exists(models[0]):
    sys.exit(f"{models[0]}, the model to train on, does not exist")
if models and os.path.isdir(models[0]):
    shutil.copytree(models[0], models[1], dirs_exist_ok=True)
elif models:
    os.makedirs(os.path.dirname(models[1]), exist_ok=True)
    shutil.copyfile(models[0], models[1])
"""


def with_samples(data: storage.Placement, image: str, current: Round) -> storage.Placement:
    """`data` with the init container, and with what it brings to the training or the evaluation.

    Args: image: of the worker
    """
    is_training = current.stage is Stage.TRAIN
    ending = current.format or current.url.rpartition(".")[2]
    target = f"{DIRECTORY}/samples.{ending if ending in _EXTENSIONS else 'txt'}"
    variables = {"TRAIN_DATASET_URL" if is_training else "TEST_DATASET_URL": target}
    parts = current.train if is_training else current.valid
    ranges = json.dumps([[part.start, part.end] for part in parts])
    models: tuple[str, ...] = ()
    if is_training and current.base:
        copy = f"{DIRECTORY}/base/{posixpath.basename(current.base.rstrip('/'))}"
        models = (storage.path_in_pod(current.base), copy)
        variables["BASE_MODEL_URL"] = copy
    mount = {"name": _VOLUME, "mountPath": DIRECTORY}
    init: dict[str, Any] = {
        "name": "edgeai-samples",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", _PROGRAM],
        "args": [storage.path_in_pod(current.url), current.format, ranges, target, *models],
        # Its last words say why the round has no samples.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": storage.RESTRICTED,
        "volumeMounts": [*data.mounts, mount],
    }
    return msgspec.structs.replace(
        data,
        env=(
            *(variable for variable in data.env if variable["name"] not in variables),
            *(literal(*item) for item in variables.items()),
        ),
        volumes=(*data.volumes, {"name": _VOLUME, "emptyDir": {}}),
        mounts=(*data.mounts, mount),
        init_containers=(*data.init_containers, init),
    )
