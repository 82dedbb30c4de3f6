"""The aggregator's state in one directory. The state survives restarts and power cuts.

    state.msgpack             FederationState: the round, and its files; replaced as a whole
    model-R                   the model that round R starts from, float32
    memory-R                  what the aggregation keeps between rounds, float32
    updates-R/NAME.part       the received pieces of an update, and then what a file had before
    updates-R/NAME.update     a whole update
    updates-R/NAME.commit     Commit of this update; with this file the update counts

A concluded federation keeps state.msgpack only. An update is written over that of the round before:
otherwise the system frees as much memory and as many blocks in each round, and finds new ones.

The aggregator calls the store. The store handles slices, and has no whole vector in memory.
"""

import contextlib
import errno
import os
import re
import shutil
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import numpy as np

from edgeai.worker.errors import AggregationError, WeightsError
from edgeai.worker.federated import files, protocol, vectors
from edgeai.worker.federated.aggregations import Aggregation, Slice
from edgeai.worker.federated.layout import Layout, Vector
from edgeai.worker.federated.protocol import Commit, Damaged, Data, Encoding, Offer
from edgeai.worker.federated.rounds import FIRST, SEED

MAX_NAMED: Final = 5  # limit for names of participants in an error
PART_LOCKS: Final = 64  # participants with the same lock only wait for each other
_OWN_FILES: Final = re.compile(r"(model|memory|updates)-[0-9]+(\.new)?")


class FederationState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one federation. `round` is SEED until there is a model."""

    encoding: Encoding
    layout: Layout = Layout(())
    round: int = SEED
    has_learned: bool = False
    """At least one round has changed the model."""
    is_finished: bool = False
    """The last round is closed: its model is the result."""
    recipients: tuple[str, ...] = ()
    """After the last round: participants that have not fetched the result yet."""
    is_concluded: bool = False
    """The result is saved, and no participant waits for it."""


class Upload(msgspec.Struct):
    """An update that arrives. `pieces`: how many of it are in its file."""

    offer: Offer
    pieces: int


class RoundOver(Exception):
    """The round is closed, or has this participant's update already."""


class NotFinite(AggregationError):
    """The aggregated model has numbers that are not finite, or too large for the encoding."""


class RoundStore:
    """Thread-safe, if each participant sends one piece at a time.

    Args: slice_bytes: how much of all updates together an aggregation reads at a time
    Raises: OSError if the directory cannot be used
    """

    def __init__(
        self, directory: Path, encoding: Encoding, *, slice_bytes: int = vectors.SLICE_BYTES
    ) -> None:
        self._directory = directory
        self._slice_bytes = slice_bytes
        directory.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()  # held to change the round, or to accept a piece
        self._part_locks = tuple(threading.Lock() for _ in range(PART_LOCKS))
        self._is_closed = False
        # By round and participant, as offered to this process.
        self._uploads: dict[tuple[int, str], Upload] = {}
        self.state = self._load(encoding)
        self._remove_leftovers()

    @property
    def numbers(self) -> int:
        return self.state.layout.size

    # ---- the model ------------------------------------------------------------------------------

    def set_layout(self, layout: Layout) -> None:
        """Set the layout, unless there is a seed. Remove updates of the old one. Raises: OSError"""
        with self._lock:
            if self.state.round == SEED and not self.commits() and self.state.layout != layout:
                shutil.rmtree(self._updates(), ignore_errors=True)
                self._uploads.clear()
                self._save(msgspec.structs.replace(self.state, layout=layout))

    def seed(self, vector: Vector, layout: Layout) -> None:
        """Start the first round with the model `vector`. Raises: OSError, WeightsError"""
        if not self._is_transferable(vector):
            problem = "the model has numbers beyond those of float16: let weights travel as float32"
            raise WeightsError(problem)
        self.set_layout(layout)
        with files.NewFile(self._directory / f"model-{FIRST}") as file:
            file.write(vectors.to_bytes(vector))
        self._start_round(FIRST)

    def model_piece(self, piece: int) -> Data:
        """One piece in wire precision, not compressed; b"" beyond the last. Raises: OSError"""
        count = protocol.numbers_of(piece, self.numbers)
        if self.state.round == SEED or not count:
            return b""
        with self._model_path().open("rb") as file:
            part = vectors.read(file, piece * protocol.PIECE_NUMBERS, count)
        return protocol.to_wire(part, self.state.encoding)

    def model(self) -> Vector:
        """The whole model, mapped from its file. Writes to the array change memory only.

        Raises: OSError
        """
        return np.memmap(self._model_path(), dtype="<f4", mode="c", shape=(self.numbers,))

    # ---- updates --------------------------------------------------------------------------------

    def offer(self, round_: int, name: str, offer: Offer) -> int:
        """Begin an update, or go on. Returns: its stored pieces.

        Raises: RoundOver, OSError; Damaged for an offer that an update here cannot have
        """
        protocol.check_offer(offer, self.numbers)
        with self._part_lock(name):
            with self._lock:
                if self._has(round_, name, offer.checksum):
                    return protocol.pieces(self.numbers)
                self._require(round_, name)
                (part,) = self._files(name, "part")
            upload = self._upload(round_, name, part)
            if upload is None or upload.offer != offer:
                part.parent.mkdir(exist_ok=True)
                upload = Upload(offer, self._stored_pieces(offer, part))
                self._uploads[round_, name] = upload
            return upload.pieces

    def _upload(self, round_: int, name: str, part: Path) -> Upload | None:
        """None: there is no offer, or its file has gone."""
        return self._uploads.get((round_, name)) if part.exists() else None

    def _stored_pieces(self, offer: Offer, part: Path) -> int:
        """The number of pieces in the file that the offer has, too, up to the first other one."""
        with part.open("a+b") as file:
            if file.tell() > self._update_bytes():
                file.truncate(self._update_bytes())
            file.seek(0)
            for piece in range(protocol.pieces(self.numbers)):
                data = file.read(self._piece_bytes())
                if protocol.crc(data) != protocol.crc_of(piece, offer.crcs):
                    return piece
        return protocol.pieces(self.numbers)

    def write_piece(self, round_: int, name: str, piece: int, data: Data, crc: bytes) -> None:
        """Write the next piece of an update, unless the piece is stored already.

        Raises: RoundOver; Damaged if an earlier piece is missing, or the offer has another; OSError
        """
        with self._part_lock(name):
            with self._lock:
                self._require(round_, name)
                (part,) = self._files(name, "part")
            upload = self._upload(round_, name, part)
            if upload is None or piece > upload.pieces:
                raise Damaged(f"piece {piece} is not the next one: make an offer first")
            if protocol.crc_of(piece, upload.offer.crcs) != crc:
                raise Damaged(f"piece {piece} is not that of the offer: make an offer first")
            if piece < upload.pieces:
                return
            with part.open("r+b") as file:
                file.seek(piece * self._piece_bytes())
                file.write(data)
            upload.pieces += 1

    def _part_lock(self, name: str) -> threading.Lock:
        """Held while the update of the participant is written, and taken before `_lock`: an offer
        would cut off the piece that an earlier connection of the participant still writes.
        """
        return self._part_locks[hash(name) % len(self._part_locks)]

    def commit(self, round_: int, name: str, commit: Commit) -> None:
        """Complete an update, which counts from now on. Raises: RoundOver, Damaged, OSError"""
        has_update = commit.samples > 0 or round_ == SEED
        with self._lock:
            if self._has(round_, name, commit.checksum):
                return  # a participant that got no answer repeats its request
            self._require(round_, name)
            part, record, update = self._files(name, "part", "commit", "update")
            upload = self._offered(round_, name, commit) if has_update else None
            file = part.open("rb") if upload is not None else None
        if upload is not None and file is not None:
            self._check_whole(file, upload)  # not in the lock, because it takes long
        with self._lock:
            if self._has(round_, name, commit.checksum):
                return  # a repeated request has completed this update
            self._require(round_, name)
            self._updates().mkdir(exist_ok=True)
            if upload is not None:
                if self._offered(round_, name, commit) is not upload:
                    raise Damaged("another update was offered meanwhile: make an offer first")
                part.rename(update)
            files.replace(record, msgspec.msgpack.encode(commit))

    def _offered(self, round_: int, name: str, commit: Commit) -> Upload:
        upload = self._upload(round_, name, *self._files(name, "part"))
        if upload is None or upload.offer.checksum != commit.checksum:
            raise Damaged("there is no such update to commit: make an offer first")
        return upload

    def commits(self) -> dict[str, Commit]:
        """By participant, in the order of their names. Raises: OSError"""
        files = sorted(self._updates().glob("*.commit"))
        return {file.stem: msgspec.msgpack.decode(file.read_bytes(), type=Commit) for file in files}

    def close(self) -> None:
        """Take no more updates in this round."""
        with self._lock:
            self._is_closed = True

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    # ---- the end of a round ---------------------------------------------------------------------

    def adopt_seed(self, name: str) -> None:
        """Start the first round from the seed that `name` sent. Raises: OSError"""
        (update,) = self._files(name, "update")
        with update.open("rb") as source, files.NewFile(self._directory / f"model-{FIRST}") as file:
            for start, count in vectors.ranges(self.numbers, protocol.PIECE_NUMBERS):
                file.write(vectors.to_bytes(self._read_update(source, start, count)))
        self._start_round(FIRST)

    def aggregate(
        self,
        aggregation: Aggregation,
        weights: Mapping[str, int] | None = None,
        *,
        is_last: bool,
        recipients: Iterable[str] = (),
    ) -> None:
        """Close the round: the updates become the next model.

        Args:
            weights: participant -> weight of its update, more than 0; None: the samples that each
                participant tells
            recipients: after the last round, the participants that must get the result

        Raises: OSError; AggregationError for a result of another shape; NotFinite
        """
        next_ = self.state.round + 1
        with ExitStack() as stack:
            weights = self._useful() if weights is None else weights
            slices = self._slices(stack, weights)
            model = stack.enter_context(files.NewFile(self._directory / f"model-{next_}"))
            memory = stack.enter_context(files.NewFile(self._directory / f"memory-{next_}"))
            for slice_ in slices:
                combined, next_memory = self._combined(aggregation, slice_, weights)
                model.write(vectors.to_bytes(combined))
                if aggregation.has_memory:
                    memory.write(vectors.to_bytes(next_memory))
        self._start_round(next_, has_learned=True, is_last=is_last, recipients=recipients)

    def keep_model(self, *, is_last: bool, recipients: Iterable[str] = ()) -> None:
        """Close the round and keep its model and memory. Raises: OSError"""
        next_ = self.state.round + 1
        for part in ("model", "memory"):
            old = self._directory / f"{part}-{self.state.round}"
            if old.exists():
                with (
                    old.open("rb") as source,
                    files.NewFile(self._directory / f"{part}-{next_}") as new,
                ):
                    shutil.copyfileobj(source, new)
        self._start_round(next_, is_last=is_last, recipients=recipients)

    def _combined(
        self, aggregation: Aggregation, slice_: Slice, names: Collection[str]
    ) -> tuple[Vector, Vector]:
        with np.errstate(over="ignore", invalid="ignore"):  # a check below raises NotFinite
            combined, memory = aggregation.combine(slice_)
        if combined.shape != slice_.model.shape:
            raise AggregationError(aggregation.name, "gave what is no model")
        if not (self._is_transferable(combined) and np.isfinite(memory).all()):
            largest = np.abs(slice_.updates).max(axis=1)
            pairs = zip(largest.tolist(), names, strict=True)
            worst = [f"{name} ({number:.3g})" for number, name in sorted(pairs, reverse=True)]
            problem = (
                f"gave what is not finite; largest numbers from {', '.join(worst[:MAX_NAMED])}"
            )
            raise NotFinite(aggregation.name, problem)
        return combined, memory

    def _is_transferable(self, vector: Vector) -> bool:
        """Whether all numbers are finite, also in wire precision."""
        numbers = protocol.from_wire(
            protocol.to_wire(vector, self.state.encoding), self.state.encoding
        )
        return bool(np.isfinite(numbers).all())

    # ---- the end --------------------------------------------------------------------------------

    def add_recipient(self, name: str) -> None:
        """After the last round: `name` must get the result, too. Raises: OSError"""
        with self._lock:
            if self.state.is_finished and name not in self.state.recipients:
                recipients = (*self.state.recipients, name)
                self._save(msgspec.structs.replace(self.state, recipients=recipients))

    def remove_recipient(self, name: str) -> None:
        """`name` has the result, or has left. Raises: OSError"""
        with self._lock:
            if name in self.state.recipients:
                rest = tuple(recipient for recipient in self.state.recipients if recipient != name)
                self._save(msgspec.structs.replace(self.state, recipients=rest))

    def conclude(self) -> None:
        """Remove all files except the record that the federation is over. Raises: OSError"""
        os.sync()  # the saved result must be durable before the store removes the model
        with self._lock:
            state = msgspec.structs.replace(
                self.state, layout=Layout(()), recipients=(), is_concluded=True
            )
            self._save(state)
        self._remove_leftovers()

    def _slices(self, stack: ExitStack, useful: Mapping[str, int]) -> Iterator[Slice]:
        """Slices of the updates of these participants. Their files stay open until `stack` closes.

        Args: useful: participant -> weight of its update
        """
        samples = np.array(list(useful.values()), dtype=np.float64)
        model = stack.enter_context(self._model_path().open("rb"))
        memory_path = self._directory / f"memory-{self.state.round}"
        memory = (
            stack.enter_context(memory_path.open("rb")) if files.has_content(memory_path) else None
        )
        updates = [
            stack.enter_context(self._files(name, "update")[0].open("rb")) for name in useful
        ]
        step = vectors.slice_numbers(len(updates), self._slice_bytes)
        wire = protocol.empty((len(updates), min(step, self.numbers)), self.state.encoding)
        for start, count in vectors.ranges(self.numbers, step):
            for row, file in zip(wire[:, :count], updates, strict=True):
                if file.readinto(row.data.cast("B")) < row.nbytes:
                    raise OSError(errno.EIO, "an update is shorter than it was", file.name)
            yield Slice(
                model=vectors.read(model, start, count),
                updates=wire[:, :count].astype(np.float32, copy=False),
                samples=samples,
                memory=vectors.read(memory, start, count)
                if memory
                else np.zeros(count, np.float32),
            )

    def _useful(self) -> dict[str, int]:
        """The number of samples by participant. The result omits participants without samples."""
        commits = self.commits().items()
        return {name: commit.samples for name, commit in commits if commit.samples > 0}

    # ---- files ----------------------------------------------------------------------------------

    def _load(self, encoding: Encoding) -> FederationState:
        path = self._directory / "state.msgpack"
        if not path.exists():
            self._require_unused()
            return FederationState(encoding=encoding)
        state = msgspec.msgpack.decode(path.read_bytes(), type=FederationState)
        if state.encoding != encoding:  # updates in the old encoding cannot be read
            shutil.rmtree(self._directory / f"updates-{state.round}", ignore_errors=True)
            self._save(msgspec.structs.replace(state, encoding=encoding))
            return self.state
        return state

    def _require_unused(self) -> None:
        """Refuse files with the store's names: the store would remove them. Raises: OSError"""
        for path in self._directory.iterdir():
            if _OWN_FILES.fullmatch(path.name):
                raise FileExistsError(
                    errno.EEXIST, "belongs to no federation known here", str(path)
                )

    def _save(self, state: FederationState) -> None:
        files.replace(self._directory / "state.msgpack", msgspec.msgpack.encode(state))
        self.state = state

    def _start_round(
        self,
        round_: int,
        *,
        has_learned: bool = False,
        is_last: bool = False,
        recipients: Iterable[str] = (),
    ) -> None:
        with self._lock:
            updates = list(self._updates().glob("*.update"))
            next_ = msgspec.structs.replace(
                self.state,
                round=round_,
                has_learned=has_learned or self.state.has_learned,
                is_finished=is_last,
                recipients=tuple(recipients) if is_last else (),
            )
            self._save(next_)
            self._uploads.clear()
            self._is_closed = False
            if not is_last:
                self._reuse(updates)
        self._remove_leftovers()

    def _reuse(self, updates: Sequence[Path]) -> None:
        """Give these files to the updates of this round."""
        with contextlib.suppress(OSError):  # then this round makes files of its own
            for update in updates:
                self._updates().mkdir(exist_ok=True)
                update.rename(*self._files(update.stem, "part"))

    def _remove_leftovers(self) -> None:
        """Remove the store's own files that the state does not name, and no other files."""
        names: set[str] = set()
        if not self.state.is_concluded:
            names = {f"{part}-{self.state.round}" for part in ("model", "memory", "updates")}
        for path in self._directory.iterdir():
            if path.name in names or not _OWN_FILES.fullmatch(path.name):
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _require(self, round_: int, name: str) -> None:
        if round_ != self.state.round or self._is_closed or self.state.is_finished:
            raise RoundOver(f"round {round_} is over")
        (record,) = self._files(name, "commit")
        if record.exists():
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

    def _check_whole(self, file: BufferedReader, upload: Upload) -> None:
        """Check that the update has come, and make it durable. Raises: Damaged, OSError"""
        with file:
            size = min(upload.pieces * self._piece_bytes(), os.fstat(file.fileno()).st_size)
            expected = self._update_bytes()
            if size != expected:
                raise Damaged(f"the update has {size} of {expected} bytes: send the rest first")
            os.fsync(file.fileno())

    def _read_update(self, file: BinaryIO, start: int, count: int) -> Vector:
        width = protocol.itemsize(self.state.encoding)
        file.seek(start * width)
        return protocol.from_wire(file.read(count * width), self.state.encoding)
