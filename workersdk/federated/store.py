"""The aggregator's state in one directory: what survives its process, a power cut included.

    state.msgpack             State: the round, and which files belong to it; replaced as a whole
    model-R                   what round R starts from, float32
    memory-R                  what the aggregation keeps from round to round, float32
    updates-R/NAME.part       what has come of an update, in whole pieces
    updates-R/NAME.offer      checksum of the update that is coming
    updates-R/NAME.update     a whole update, checked
    updates-R/NAME.commit     Commit: what was said of it; with this file the update counts

Of a federation that is over and done with only the first is left.

Called by the aggregator. Holds no vector in memory: it reads and writes in slices.
"""

import errno
import os
import re
import shutil
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import numpy as np

from workersdk.errors import AggregationError, WeightsError
from workersdk.federated import files, protocol, vectors
from workersdk.federated.aggregations import Aggregation, Slice
from workersdk.federated.layout import Layout, Vector
from workersdk.federated.protocol import Commit, Damaged, Encoding
from workersdk.federated.rounds import FIRST, SEED

MAX_NAMED: Final = 5  # participants in an error
_OURS: Final = re.compile(r"(model|memory|updates)-[0-9]+(\.new)?")


class State(msgspec.Struct, frozen=True, kw_only=True):
    """`round` is SEED while there is no model."""

    encoding: Encoding
    layout: Layout = Layout(())
    round: int = SEED
    has_learned: bool = False
    """At least one round's updates have become a model."""
    is_finished: bool = False
    """The last round is closed: its model is the result."""
    takers: tuple[str, ...] = ()
    """Of a finished one: participants that have yet to take the result."""
    is_concluded: bool = False
    """The result is saved, and nobody waits for it: nothing is left to do."""


class RoundOver(Exception):
    """The round is another one by now, or has this participant's update already."""


class NotFinite(AggregationError):
    """The updates join to numbers that no model can have, or that do not travel."""


class RoundStore:
    """Thread-safe where one participant's pieces come one after the other.

    Args: slice_bytes: what an aggregation holds of all updates together at a time
    Raises: OSError where the directory cannot be used
    """

    def __init__(
        self, directory: Path, encoding: Encoding, *, slice_bytes: int = vectors.SLICE_BYTES
    ) -> None:
        self._directory = directory
        self._slice_bytes = slice_bytes
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()  # guards the round's changes against new pieces
        self._is_closed = False
        self.state = self._load(encoding)
        self._sweep()

    @property
    def numbers(self) -> int:
        return self.state.layout.size

    # ---- the model ------------------------------------------------------------------------------

    def expect(self, layout: Layout) -> None:
        """The federation's, unless it has a seed; what was sent of another goes. Raises: OSError"""
        with self._lock:
            if self.state.round == SEED and not self.commits() and self.state.layout != layout:
                shutil.rmtree(self._updates(), ignore_errors=True)
                self._save(msgspec.structs.replace(self.state, layout=layout))

    def seed(self, vector: Vector, layout: Layout) -> None:
        """Start the first round from this. Raises: OSError, WeightsError"""
        if not self._travels(vector):
            problem = "the model has numbers beyond those of float16: let weights travel as float32"
            raise WeightsError(problem)
        self.expect(layout)
        with files.NewFile(self._directory / f"model-{FIRST}") as file:
            file.write(vectors.to_bytes(vector))
        self._turn(FIRST)

    def model_piece(self, piece: int) -> bytes:
        """As it travels, before compression; b"" beyond the last. Raises: OSError"""
        count = protocol.numbers_of(piece, self.numbers)
        if self.state.round == SEED or not count:
            return b""
        with self._model_path().open("rb") as file:
            part = vectors.read(file, piece * protocol.PIECE_NUMBERS, count)
        return protocol.to_wire(part, self.state.encoding)

    def model(self) -> Vector:
        """The whole of it, as a mapping of its file; what is written to it stays in memory.

        Raises: OSError
        """
        return np.memmap(self._model_path(), dtype="<f4", mode="c", shape=(self.numbers,))

    # ---- updates --------------------------------------------------------------------------------

    def offer(self, round_: int, name: str, checksum: str) -> int:
        """How many of its pieces are here. Raises: RoundOver, OSError"""
        with self._lock:
            if self._has(round_, name, checksum):
                return protocol.pieces(self.numbers)
            self._require(round_, name)
            part, offer = self._files(name, "part", "offer")
            if not part.exists() or not offer.exists() or offer.read_text() != checksum:
                part.parent.mkdir(exist_ok=True)
                part.write_bytes(b"")
                files.replace(offer, checksum.encode())
            return self._cut_to_whole_pieces(part)

    def write_piece(self, round_: int, name: str, piece: int, data: bytes) -> None:
        """One that is here already is not written again.

        Raises: RoundOver; Damaged when an earlier one is missing; OSError
        """
        start = piece * self._piece_bytes()
        with self._lock:
            self._require(round_, name)
            (part,) = self._files(name, "part")
            size = part.stat().st_size if part.exists() else -1
        if size < start:
            raise Damaged(f"piece {piece} is not the next one: make an offer first")
        if size >= start + len(data):
            return
        with part.open("r+b") as file:
            file.seek(start)  # over what a full disk left of it
            file.write(data)

    def commit(self, round_: int, name: str, commit: Commit) -> None:
        """From now on the update counts. Raises: RoundOver, Damaged, OSError"""
        has_update = commit.samples > 0 or round_ == SEED
        with self._lock:
            if self._has(round_, name, commit.checksum):
                return  # said again by somebody who did not hear the answer
            self._require(round_, name)
            part = self._offered(name, commit.checksum).open("rb") if has_update else None
        if part is not None:
            self._check_whole(part, commit.checksum)  # takes long: others are not to wait for it
        with self._lock:
            if self._has(round_, name, commit.checksum):
                return  # said again while this was checked
            self._require(round_, name)
            self._updates().mkdir(exist_ok=True)
            told, update = self._files(name, "commit", "update")
            if part is not None:
                self._offered(name, commit.checksum).rename(update)
            files.replace(told, msgspec.msgpack.encode(commit))

    def _offered(self, name: str, checksum: str) -> Path:
        part, offer = self._files(name, "part", "offer")
        if not part.exists() or not offer.exists() or offer.read_text() != checksum:
            raise Damaged("there is no such update to commit: make an offer first")
        return part

    def commits(self) -> dict[str, Commit]:
        """By participant, in the order of their names. Raises: OSError"""
        files = sorted(self._updates().glob("*.commit"))
        return {file.stem: msgspec.msgpack.decode(file.read_bytes(), type=Commit) for file in files}

    def close(self) -> None:
        """No more updates in this round."""
        with self._lock:
            self._is_closed = True

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    # ---- the end of a round ---------------------------------------------------------------------

    def adopt(self, name: str) -> None:
        """Start the first round from the seed that `name` sent. Raises: OSError"""
        (update,) = self._files(name, "update")
        with update.open("rb") as source, files.NewFile(self._directory / f"model-{FIRST}") as file:
            for start, count in vectors.ranges(self.numbers, protocol.PIECE_NUMBERS):
                file.write(vectors.to_bytes(self._read_update(source, start, count)))
        self._turn(FIRST)

    def aggregate(
        self, aggregation: Aggregation, *, is_last: bool, takers: Iterable[str] = ()
    ) -> None:
        """Close the round: the updates become the next model.

        Args: takers: of the last round, who is to have the result
        Raises: OSError; AggregationError when it gives what is no model; NotFinite
        """
        next_ = self.state.round + 1
        with ExitStack() as stack:
            slices = self._slices(stack)
            model = stack.enter_context(files.NewFile(self._directory / f"model-{next_}"))
            memory = stack.enter_context(files.NewFile(self._directory / f"memory-{next_}"))
            for slice_ in slices:
                combined, kept = self._combined(aggregation, slice_)
                model.write(vectors.to_bytes(combined))
                if aggregation.has_memory:
                    memory.write(vectors.to_bytes(kept))
        self._turn(next_, has_learned=True, is_last=is_last, takers=takers)

    def keep(self, *, is_last: bool, takers: Iterable[str] = ()) -> None:
        """Close the round as if nobody had sent anything. Raises: OSError"""
        next_ = self.state.round + 1
        for each in ("model", "memory"):
            old = self._directory / f"{each}-{self.state.round}"
            if old.exists():
                with (
                    old.open("rb") as source,
                    files.NewFile(self._directory / f"{each}-{next_}") as new,
                ):
                    shutil.copyfileobj(source, new)
        self._turn(next_, is_last=is_last, takers=takers)

    def _combined(self, aggregation: Aggregation, slice_: Slice) -> tuple[Vector, Vector]:
        with np.errstate(over="ignore", invalid="ignore"):  # what comes of it is told below
            combined, kept = aggregation.combine(slice_)
        if combined.shape != slice_.model.shape:
            raise AggregationError(aggregation.name, "gave what is no model")
        if not (self._travels(combined) and np.isfinite(kept).all()):
            largest = np.abs(slice_.updates).max(axis=1)
            sent = zip(largest.tolist(), self._useful(), strict=True)
            worst = [f"{name} ({number:.3g})" for number, name in sorted(sent, reverse=True)]
            problem = (
                f"gave what is not finite; largest numbers from {', '.join(worst[:MAX_NAMED])}"
            )
            raise NotFinite(aggregation.name, problem)
        return combined, kept

    def _travels(self, vector: Vector) -> bool:
        """All of it is finite, also in the precision in which it is sent."""
        sent = protocol.from_wire(
            protocol.to_wire(vector, self.state.encoding), self.state.encoding
        )
        return bool(np.isfinite(sent).all())

    # ---- the end --------------------------------------------------------------------------------

    def await_taker(self, name: str) -> None:
        """Of a finished federation: `name` is to have the result, too. Raises: OSError"""
        with self._lock:
            if self.state.is_finished and name not in self.state.takers:
                takers = (*self.state.takers, name)
                self._save(msgspec.structs.replace(self.state, takers=takers))

    def taken(self, name: str) -> None:
        """`name` has the result, or wants it no more. Raises: OSError"""
        with self._lock:
            if name in self.state.takers:
                left = tuple(taker for taker in self.state.takers if taker != name)
                self._save(msgspec.structs.replace(self.state, takers=left))

    def conclude(self) -> None:
        """Keep nothing but that it is done; for when the result is saved. Raises: OSError"""
        os.sync()  # whoever saved the result may not have: it must outlive what it is made of
        with self._lock:
            done = msgspec.structs.replace(
                self.state, layout=Layout(()), takers=(), is_concluded=True
            )
            self._save(done)
        self._sweep()

    def _slices(self, stack: ExitStack) -> Iterator[Slice]:
        """Of the updates that have samples; their files stay open as long as the stack."""
        useful = self._useful()
        samples = np.array(list(useful.values()), dtype=np.float64)
        model = stack.enter_context(self._model_path().open("rb"))
        memory_path = self._directory / f"memory-{self.state.round}"
        memory = (
            stack.enter_context(memory_path.open("rb")) if files.has_content(memory_path) else None
        )
        updates = [
            stack.enter_context(self._files(each, "update")[0].open("rb")) for each in useful
        ]
        step = vectors.slice_numbers(len(updates), self._slice_bytes)
        for start, count in vectors.ranges(self.numbers, step):
            yield Slice(
                model=vectors.read(model, start, count),
                updates=np.stack([self._read_update(file, start, count) for file in updates]),
                samples=samples,
                memory=vectors.read(memory, start, count)
                if memory
                else np.zeros(count, np.float32),
            )

    def _useful(self) -> dict[str, int]:
        """Samples by participant, of those who have any."""
        told = self.commits().items()
        return {name: commit.samples for name, commit in told if commit.samples > 0}

    # ---- files ----------------------------------------------------------------------------------

    def _load(self, encoding: Encoding) -> State:
        path = self._directory / "state.msgpack"
        if not path.exists():
            self._require_unused()
            return State(encoding=encoding)
        state = msgspec.msgpack.decode(path.read_bytes(), type=State)
        if state.encoding != encoding:  # what came in the other one cannot be read
            shutil.rmtree(self._directory / f"updates-{state.round}", ignore_errors=True)
            self._save(msgspec.structs.replace(state, encoding=encoding))
            return self.state
        return state

    def _require_unused(self) -> None:
        """What has our files' names, and is of somebody else, would be removed."""
        for path in self._directory.iterdir():
            if _OURS.fullmatch(path.name):
                raise FileExistsError(errno.EEXIST, "is of no federation known here", str(path))

    def _save(self, state: State) -> None:
        files.replace(self._directory / "state.msgpack", msgspec.msgpack.encode(state))
        self.state = state

    def _turn(
        self,
        round_: int,
        *,
        has_learned: bool = False,
        is_last: bool = False,
        takers: Iterable[str] = (),
    ) -> None:
        with self._lock:
            next_ = msgspec.structs.replace(
                self.state,
                round=round_,
                has_learned=has_learned or self.state.has_learned,
                is_finished=is_last,
                takers=tuple(takers) if is_last else (),
            )
            self._save(next_)
            self._is_closed = False
        self._sweep()

    def _sweep(self) -> None:
        """Remove what the state does not name, of our files: others may lie beside them."""
        kept: set[str] = set()
        if not self.state.is_concluded:
            kept = {f"{each}-{self.state.round}" for each in ("model", "memory", "updates")}
        for path in self._directory.iterdir():
            if path.name in kept or not _OURS.fullmatch(path.name):
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _require(self, round_: int, name: str) -> None:
        if round_ != self.state.round or self._is_closed or self.state.is_finished:
            raise RoundOver(f"round {round_} is over")
        (told,) = self._files(name, "commit")
        if told.exists():
            raise RoundOver(f"{name} has sent its update of round {round_} already")

    def _has(self, round_: int, name: str, checksum: str) -> bool:
        commit = self.commits().get(name) if round_ == self.state.round else None
        return commit is not None and commit.checksum == checksum

    def _updates(self) -> Path:
        return self._directory / f"updates-{self.state.round}"

    def _files(self, name: str, *endings: str) -> tuple[Path, ...]:
        return tuple(self._updates() / f"{name}.{ending}" for ending in endings)

    def _model_path(self) -> Path:
        return self._directory / f"model-{self.state.round}"

    def _piece_bytes(self) -> int:
        return protocol.PIECE_NUMBERS * protocol.itemsize(self.state.encoding)

    def _update_bytes(self) -> int:
        return self.numbers * protocol.itemsize(self.state.encoding)

    def _cut_to_whole_pieces(self, part: Path) -> int:
        """A process that was killed may have left a piece half written."""
        size, expected = part.stat().st_size, self._update_bytes()
        if size == expected:
            return protocol.pieces(self.numbers)
        whole = size // self._piece_bytes() if size < expected else 0
        os.truncate(part, whole * self._piece_bytes())
        return whole

    def _check_whole(self, part: BinaryIO, checksum: str) -> None:
        with part:
            size, expected = os.fstat(part.fileno()).st_size, self._update_bytes()
            if size != expected:
                raise Damaged(f"the update has {size} of {expected} bytes: send the rest first")
            found = protocol.digest(iter(lambda: part.read(1 << 20), b""))
            if found != checksum:
                Path(part.name).unlink(missing_ok=True)
                raise Damaged("the update's checksum is not the one that was offered: begin anew")
            os.fsync(part.fileno())

    def _read_update(self, file: BinaryIO, start: int, count: int) -> Vector:
        width = protocol.itemsize(self.state.encoding)
        file.seek(start * width)
        return protocol.from_wire(file.read(count * width), self.state.encoding)
