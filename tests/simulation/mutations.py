"""Mutations of the shipped code, each of which breaks a promise, and the run that finds each.

    python -m tests.simulation.mutations            all of them, with the seed that finds each
    python -m tests.simulation.mutations 3 7        only these

Each mutation is applied to a copy of the tree, and the simulation runs there until a promise is
broken. Before that, a copy without a mutation must keep all promises: on a broken tree, every
mutation would seem to be found.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

from tests.simulation.__main__ import SEEDS, STEPS, WITH_ROUNDS
from tests.simulation.driver import FIRST_WITH_FLEETS, FIRST_WITH_ROLLOUTS, FIRST_WITH_ROUNDS

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("common", "edgeai", "globalmanager", "localcontroller", "tests/simulation")
MODULES: Final = ("tests/__init__.py", "tests/support/manifests.py", "tests/support/sqlite_vfs.py")
SEEDS_WITHOUT: Final = 25
"""Of the copy without a mutation."""


class Edit(NamedTuple):
    file: str
    old: str
    """Occurs in the file exactly once."""
    new: str


class Mutation:
    """
    Args:
        promises: those that it breaks; a run may show any of them
        first: the first seed that could find it
    """

    def __init__(self, name: str, promises: str, *edits: Edit, first: int = 1) -> None:
        self.name, self.promises, self.edits, self.first = name, promises, edits, first


INBOX: Final = "globalmanager/edge/sessions/inbox.py"
CLOUD_SESSION: Final = "globalmanager/edge/sessions/cloud_session.py"
TABLES: Final = "localcontroller/ledger/tables.py"
ROLLOUT: Final = "globalmanager/kinds/edge/jointinferenceservice/rollout.py"
CONTENT: Final = "localcontroller/content.py"
LEARNING: Final = "globalmanager/kinds/edge/incrementallearningjob"
CONVERSATION: Final = "localcontroller/link/conversation.py"

MUTATIONS: Final = (
    Mutation(
        "the cloud acknowledges a report before the API has it",
        "I3 I5",
        Edit(
            INBOX,
            "                written = await self._writer.write(\n"
            "                    mailbox.task, mailbox.uid, [reports[key] for key in keys]\n"
            "                )\n",
            "                self._late = asyncio.ensure_future(\n"
            "                    self._writer.write(\n"
            "                        mailbox.task, mailbox.uid, [reports[key] for key in keys]\n"
            "                    )\n"
            "                )\n"
            "                written = [Done()] * len(keys)\n",
        ),
    ),
    Mutation(
        "a slice is written whatever has become of it",
        "I3 I4",
        Edit(
            "globalmanager/engine/status.py",
            "                    await self._live.replace(CONFIG_MAPS, {**config_map, "
            '"data": data})\n',
            '                    names = {"name": name, "namespace": ref.namespace}\n'
            '                    changed = {**config_map, "metadata": names, "data": data}\n'
            "                    await self._live.replace(CONFIG_MAPS, changed)\n",
        ),
        first=FIRST_WITH_FLEETS,
    ),
    Mutation(
        "an edge acknowledges a frame before its commit",
        "I5",
        Edit(
            CONVERSATION,
            "            refusals = await self._apply(frames)\n"
            "            self._acknowledge(frames, refusals)",
            '            self._acknowledge(frames, ["" for _ in frames])\n'
            "            await self._apply(frames)",
        ),
    ),
    Mutation(
        "a commit of the ledger is not synced",
        "I5",
        Edit(
            "localcontroller/ledger/file.py",
            '    db.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")',
            '    db.execute("PRAGMA synchronous = NORMAL")\n'
            '    db.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")',
        ),
    ),
    Mutation(
        "a report of an older attempt replaces a newer one",
        "I4",
        Edit(
            "globalmanager/kinds/shared/worker_status.py",
            "    return report.attempt < attempt",
            "    return False",
        ),
    ),
    Mutation(
        "an older version of a task replaces a newer one",
        "I2",
        Edit(
            CLOUD_SESSION,
            "edge.uid == task.uid and edge.version >= task.version",
            "edge.uid == task.uid and edge.version == task.version",
        ),
        Edit(
            TABLES,
            "task.uid == frame.uid and task.version >= frame.version",
            "task.uid == frame.uid and task.version == frame.version",
        ),
    ),
    Mutation(
        "Synced withdraws too little",
        "I1",
        Edit(TABLES, "            if key not in names:", "            if not names:"),
    ),
    Mutation(
        "Synced withdraws too much",
        "I1",
        Edit(
            CLOUD_SESSION,
            "wire.parts_of(self._desired)",
            "wire.parts_of(self._desired.keys() & self.task_versions.keys())",
        ),
    ),
    Mutation(
        "an older session stays when a newer one of the node begins",
        "I8",
        Edit(
            "globalmanager/edge/sessions/registry.py",
            "            self._replace(older, session.node)",
            "            self._replace(None, session.node)",
        ),
    ),
    Mutation(
        "an edge does not look at the epoch",
        "I8",
        Edit(
            "localcontroller/link/edge_session.py",
            "        if frame.epoch < self._epoch:",
            "        if frame.epoch < 0:",
        ),
    ),
    Mutation(
        "a report of another node is folded",
        "I9",
        Edit(
            "globalmanager/edge/sessions/desired_sets.py",
            "        return self._bindings.get((node, uid))",
            "        known = self._bindings.items()\n"
            "        return next((each for (_, its), each in known if its == uid), None)",
        ),
    ),
    Mutation(
        "a report of the former node replaces that of the present node",
        "I4",
        Edit(
            "globalmanager/kinds/shared/worker_status.py",
            "if report.is_former and entry",
            "if False and entry",
        ),
    ),
    Mutation(
        "a report of a lost ledger replaces one of the node's new ledger",
        "I3",
        Edit(
            "globalmanager/edge/sessions/report_writer.py",
            "        raise _UnknownOrder(report)",
            "        pass",
        ),
    ),
    Mutation(
        "a report is written whatever spec the job has now",
        "I4 I9",
        Edit(
            "globalmanager/edge/sessions/report_writer.py",
            "generation = reports[0].generation",
            "generation = None",
        ),
    ),
    Mutation(
        "what a replica has published counts as known when the answer of the API is lost",
        "I13",
        Edit(
            "globalmanager/ha/presence.py",
            'before = self._published = (owner["uid"], _UNKNOWN)',
            "before = self._published",
        ),
    ),
    Mutation(
        "a worker that belongs to a node again is not reported again",
        "I3",
        Edit(
            TABLES,
            "        self._resend_states(frame.uid, only_final=",
            "        self._resend_states(frame.uid, only_final=True or ",
        ),
    ),
    Mutation(
        "the acknowledgement of an older report takes the newer one along",
        "I3",
        Edit(
            TABLES,
            '            " WHERE uid = ? AND worker = ? AND revision = ?",\n'
            "            *(report.uid, report.worker, report.revision),",
            '            " WHERE uid = ? AND worker = ? AND revision >= ?",\n'
            "            *(report.uid, report.worker, report.revision),",
        ),
    ),
    Mutation(
        "a repeated creation makes a second worker",
        "I6",
        Edit(
            "globalmanager/engine/apply.py",
            "        ref = ref_of(action.type, action.object)\n"
            "        try:\n"
            "            object_ = await self._live.create(",
            "        name = f\"{action.object['metadata']['name']}-{id(action) % 9973}\"\n"
            '        action.object["metadata"]["name"] = name\n'
            "        ref = ref_of(action.type, action.object)\n"
            "        try:\n"
            "            object_ = await self._live.create(",
        ),
    ),
    Mutation(
        "a status is written without looking at what it replaces",
        "I3 I4",
        Edit(
            "globalmanager/engine/status.py",
            'body = {"metadata": {"resourceVersion": version}, "status": patch}',
            'body = {"metadata": {}, "status": patch}',
        ),
    ),
    Mutation(
        "a leader leads on after its Lease",
        "I8",
        Edit(
            "globalmanager/ha/elector.py",
            "self._fence.open_until(asked_at + self._timing.renew_deadline_s)",
            "self._fence.open_until(asked_at + 4 * self._timing.duration_s)",
        ),
    ),
    Mutation(
        "an edge forgets the unsent reports of its last session",
        "I3",
        Edit(
            CONVERSATION,
            "        self._last_revision = 0  #",
            "        self._last_revision = self._view.revision  #",
        ),
    ),
    Mutation(
        "the counts of an ended process are lost",
        "I5",
        Edit(
            "localcontroller/ledger/attempts.py",
            "        past_counts = _plus(past_counts, processes.pop(oldest).counts)",
            "        processes.pop(oldest)",
        ),
    ),
    Mutation(
        "the inbox takes reports without a limit",
        "I10",
        Edit(
            INBOX,
            "            and self._reports_of[sender.node] < self._limits.reports_per_node\n",
            "",
        ),
    ),
    Mutation(
        "the ledger keeps every process that a worker ever had",
        "I10",
        Edit(
            "localcontroller/ledger/attempts.py",
            "    while len(processes) >= MAX_WORKER_PROCESSES:",
            "    while len(processes) >= 99 * MAX_WORKER_PROCESSES:",
        ),
    ),
    Mutation(
        "a spec counts as carried out before it is, and is then not looked at again",
        "I14",
        Edit(
            "globalmanager/engine/apply.py",
            "        for stage in plan.stages:",
            "        await self.tell(observed, plan)\n        for stage in plan.stages:",
        ),
        Edit(
            "globalmanager/kinds/shared/children.py",
            "        elif is_being_deleted(existing):\n            continue",
            "        elif is_being_deleted(existing) or observed.generation == (\n"
            '            observed.object.get("status") or {}\n'
            '        ).get("observedGeneration"):\n'
            "            continue",
        ),
    ),
    Mutation(
        "an informer goes on from a version that the API has forgotten",
        "I1",
        Edit(
            "globalmanager/cache/informer.py",
            "makes the store equal to the API again.\n        self._resource_version",
            "makes the store equal to the API again.\n        self._ignored",
        ),
    ),
    Mutation(
        "nodes get a version before the wave that reaches them",
        "I9",
        Edit(
            ROLLOUT,
            "state.version if is_reached and not self._is_back else state.previous",
            "state.previous if self._is_back else state.version",
        ),
        first=FIRST_WITH_ROLLOUTS,
    ),
    Mutation(
        "former content returns with its former number",
        "I1",
        Edit(ROLLOUT, "number=top + 1, instead_of", "instead_of"),
        first=FIRST_WITH_ROLLOUTS,
    ),
    Mutation(
        "a decision about a version is no news for nodes",
        "I1",
        Edit(
            "globalmanager/engine/assign.py",
            "if decisions and _fields(old, decisions) != _fields(new, decisions):",
            "if decisions and not _fields(new, decisions):",
        ),
        first=FIRST_WITH_ROLLOUTS,
    ),
    Mutation(
        "a paused rollout goes on",
        "rollout",
        Edit(
            ROLLOUT, "        if rollout.paused or (rollout.promote", "        if (rollout.promote"
        ),
        first=FIRST_WITH_ROLLOUTS,
    ),
    Mutation(
        "no round begins after the first one",
        "I14",
        Edit(
            f"{LEARNING}/rounds.py",
            "if count <= state.progress.triggered or closed_s > 0:",
            "if state.round or count <= state.progress.triggered or closed_s > 0:",
        ),
        first=FIRST_WITH_ROUNDS,
    ),
    Mutation(
        "rounds of a suspended job go on",
        "I6",
        Edit(
            f"{LEARNING}/plan.py",
            "    elif is_suspended:\n        step = Step(job.with_success())\n",
            "",
        ),
        first=FIRST_WITH_ROUNDS,
    ),
    Mutation(
        "a pod that ends because of a suspension costs an attempt",
        "I6",
        Edit(
            f"{LEARNING}/rounds.py",
            "elif pod is not None and is_being_deleted(pod):",
            'elif pod is not None and is_being_deleted(pod) and phase != "Failed":',
        ),
        first=FIRST_WITH_ROUNDS,
    ),
    Mutation(
        "a round takes what a worker has told of the round before",
        "I6",
        Edit(
            f"{LEARNING}/state.py",
            'url.partition(f"{root}/")[2].rstrip("/")',
            'url.partition("/model/")[2].rstrip("/")',
        ),
        first=FIRST_WITH_ROUNDS,
    ),
    Mutation(
        "samples of a round that failed are in no other round",
        "I6",
        Edit(
            f"{LEARNING}/rounds.py",
            "triggers.divided(progress.trained, count, spec.dataset.train_prob)",
            "triggers.divided(progress.triggered, count, spec.dataset.train_prob)",
        ),
        first=FIRST_WITH_ROUNDS,
    ),
    Mutation(
        "a model is deployed before the inference worker says that it has it",
        "I6",
        Edit(
            f"{LEARNING}/workers.py",
            "return str(version) == str(current.number)",
            "return bool(version)",
        ),
        first=FIRST_WITH_ROUNDS,
    ),
    Mutation(
        "content of a Model gets its name before its bytes are on the disk",
        "content",
        Edit(CONTENT, "        os.fdatasync(self._file.fileno())\n", ""),
    ),
    Mutation(
        "a version that no worker has loaded takes the place of the one that a worker has",
        "content",
        Edit(
            CONTENT,
            "        before.sort(key=lambda other: other.digest != self.loaded)\n",
            "",
        ),
    ),
    Mutation(
        "content is not compared with the digest of the spec",
        "content",
        Edit(
            "localcontroller/hooks/model.py",
            "        if expected and part.digest != expected:",
            "        if expected and False:",
        ),
    ),
)


def main(arguments: list[str]) -> int:
    numbers = [int(each) for each in arguments] or list(range(1, len(MUTATIONS) + 1))
    if problem := broken(seeds=SEEDS_WITHOUT, rounds=0):
        print(f"without a mutation, too, a promise is broken: {problem}")
        return 1
    print(f"without a mutation {SEEDS_WITHOUT} seeds keep all promises", flush=True)
    missed = 0
    for number in numbers:
        mutation = MUTATIONS[number - 1]
        began = time.monotonic()
        # The seeds of `make simulate`: they pass without a mutation.
        found = broken(*mutation.edits, seeds=SEEDS, first=mutation.first)
        missed += not found
        seconds = time.monotonic() - began
        print(
            f"{number:2} {mutation.name}\n   {found or 'NOT FOUND'} ({seconds:.0f} s)", flush=True
        )
    print(f"{len(numbers) - missed} of {len(numbers)} found")
    return 1 if missed else 0


def broken(*edits: Edit, seeds: int, first: int = 1, rounds: int = WITH_ROUNDS) -> str:
    """Returns: the first seed that breaks a promise in an edited copy, and how; "" if none does

    Raises: SystemExit when the simulation itself fails
    """
    with tempfile.TemporaryDirectory() as directory:
        copy_tree(Path(directory))
        for edit in edits:
            apply(edit, Path(directory))
        command = [sys.executable, "-m", "tests.simulation", "--until-broken"]
        command += [
            f"--first={first}",
            f"--seeds={max(0, seeds - first + 1)}",
            f"--rounds={rounds}",
            f"--steps={STEPS}",
            "--processes=1",
        ]
        ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    seed = re.search(r"^seed (\d+): .*BROKEN$", ended.stdout, re.MULTILINE)
    if seed is None:
        if ended.returncode:
            raise SystemExit(f"the simulation ended with {ended.returncode}:\n{ended.stderr}")
        return ""
    problem = re.search(r"\n\n(.*)\nagain:", ended.stdout, re.DOTALL)
    return f"seed {seed[1]}: {problem[1][:160] if problem else ''}"


def copy_tree(to: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, to / package)  # bytecode too, else each run compiles it
    for module in MODULES:
        (to / module).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / module, to / module)


def apply(edit: Edit, tree: Path) -> None:
    file = tree / edit.file
    text = file.read_text()
    if text.count(edit.old) != 1:
        raise ValueError(f"{edit.file}: {edit.old!r} occurs {text.count(edit.old)} times")
    file.write_text(text.replace(edit.old, edit.new))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
