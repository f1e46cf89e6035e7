"""Reads a shard back: its frames against its index, its bytes against its account.

What stands in the records is compared with the sources in `transforms.core.comparing`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from transforms.core import files, index, keys
from transforms.core.index import WRITTEN, IndexFileError, IndexRow
from transforms.core.pairs import PATH_COLUMNS
from transforms.core.shards import index_name
from transforms.core.tfrecord import (
    FRAME_BYTES,
    Frame,
    FrameError,
    crc32c_of,
    format_footer,
    format_header,
    read_frame,
)

RANKS = 2**keys.RANK_BITS
"""Ranks of `keys.verify_rank` are below this: a threshold of it samples every record."""


@dataclass(frozen=True, slots=True)
class ShardCheck:
    """What a shard has to be, as dataset.json or the build says.

    Attributes:
      name: of its file.
      records, size_bytes, crc32c: of the file.
      sampled: whether records of it may be compared with their sources.
    """

    name: str
    records: int
    size_bytes: int
    crc32c: int
    sampled: bool = True


@dataclass(frozen=True, slots=True, order=True)
class Failure:
    """Something that is not as it has to be.

    Attributes:
      shard: the file's name.
      offset: of the frame in it, in bytes; -1 where the whole file is meant.
      key: of the row; '' where none is known.
      what: what differs, with what was found and what was expected.
      source_changed: the record may be right: its source is another one than at the build.
    """

    shard: str
    offset: int
    key: str
    what: str
    source_changed: bool = False


@dataclass(frozen=True, slots=True)
class VerifyInfo:
    """What was found out about one shard.

    Attributes:
      name: of its file.
      records: whose frames were read.
      compared: records that were compared with their sources.
      failures: sorted by offset.
    """

    name: str
    records: int
    compared: int
    failures: tuple[Failure, ...]


def check_shard(
    folder: str, check: ShardCheck, on_record: Callable[[], None] = lambda: None
) -> tuple[list[IndexRow], list[Failure]]:
    """Reads a shard and its index whole.

    Checks the frames' CRCs and lengths, that they are the records that the index names, in
    that order and at those offsets, their number, and the size and CRC-32C of the file.

    Returns:
      The index rows of the records whose frames are right, and all that is wrong.
    """
    try:
        rows = index.read_index(os.path.join(folder, index_name(check.name)), PATH_COLUMNS)
        file = files.open_file(os.path.join(folder, check.name))
    except FileNotFoundError as error:
        missing = os.path.relpath(str(error.filename), folder)
        return [], [Failure(check.name, -1, "", f"{missing} is missing")]
    except IndexFileError as error:
        return [], [Failure(check.name, -1, "", str(error).replace(folder + os.sep, ""))]
    size = files.file_size(os.path.join(folder, check.name)) or 0
    walk = _Walk(check.name, [row for row in rows if row.status == WRITTEN], size)
    with file:
        walk.run(file, on_record)
    return walk.good, sorted([*walk.failures, *_check_account(check, walk)])


def sample_rows(rows: Sequence[IndexRow], *, seed: int, threshold: int) -> list[IndexRow]:
    """Returns the records that are to be compared: those whose rank is below the threshold."""
    if threshold >= RANKS:
        return list(rows)
    return [row for row in rows if keys.verify_rank(row.key, seed=seed) < threshold]


@dataclass(slots=True)
class _Walk:
    """Reads frames one after another and holds them against the index.

    A broken frame says nothing about where the next begins: the index does. A record that is
    missing or out of its place is known by its CRC.
    """

    shard: str
    expected: list[IndexRow]
    size: int
    good: list[IndexRow] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    frames: int = 0
    crc: int = 0
    _next: int = 0

    def run(self, file: BinaryIO, on_record: Callable[[], None]) -> None:
        known: dict[tuple[int, int], list[int]] = defaultdict(list)
        for number, row in enumerate(self.expected):
            known[row.length, row.crc32c].append(number)
        offset = 0
        while offset < self.size:
            file.seek(offset)
            try:
                frame = read_frame(file, offset, limit=self.size)
            except FrameError as error:
                offset = self._step_over(error)
                continue
            if frame is None:
                break
            self._take(frame, known)
            on_record()
            offset += len(frame.data) + FRAME_BYTES
        for row in self.expected[self._next :]:
            self._fail(row.offset, row.key, "the record is missing at the end of the shard")

    def _take(self, frame: Frame, known: dict[tuple[int, int], list[int]]) -> None:
        self.frames += 1
        data = [format_header(len(frame.data)), frame.data, format_footer(frame.crc32c)]
        self.crc = crc32c_of(data, self.crc)
        places = known.get((len(frame.data), frame.crc32c), [])
        here = next((number for number in places if number >= self._next), None)
        if here is None:
            self._take_stranger(frame, places)
            return
        for row in self.expected[self._next : here]:
            found = self.expected[here].key
            self._fail(frame.offset, row.key, f"the record is not here; that of {found} is")
        row = self.expected[here]
        self._next = here + 1
        if row.offset == frame.offset:
            self.good.append(row)
        elif not self.failures:
            self._fail(frame.offset, row.key, f"the index has this record at {row.offset}")

    def _take_stranger(self, frame: Frame, places: Sequence[int]) -> None:
        """A frame that is whole, but not a record that may stand here."""
        if places:
            key = self.expected[places[0]].key
            self._fail(frame.offset, key, "the record is out of its place, or stands here twice")
            return
        key = ""
        if self._next < len(self.expected):
            row = self.expected[self._next]
            if row.offset == frame.offset:
                key = row.key
                self._next += 1
        what = f"the record (CRC {frame.crc32c:08x}) is not one that the index knows"
        self._fail(frame.offset, key, what)

    def _step_over(self, error: FrameError) -> int:
        """Returns where to go on behind a broken frame: the next record, as the index has it."""
        while self._next < len(self.expected) and self.expected[self._next].offset < error.offset:
            row = self.expected[self._next]
            self._fail(row.offset, row.key, "the record is missing")
            self._next += 1
        key = ""
        if self._next < len(self.expected) and self.expected[self._next].offset == error.offset:
            key = self.expected[self._next].key
            self._next += 1
        self._fail(error.offset, key, error.reason)
        following = [row.offset for row in self.expected[self._next : self._next + 1]]
        return following[0] if following and following[0] > error.offset else self.size

    def _fail(self, offset: int, key: str, what: str) -> None:
        self.failures.append(Failure(self.shard, offset, key, what))


def _check_account(check: ShardCheck, walk: _Walk) -> list[Failure]:
    """Holds number, size and CRC of the file against its account."""
    wrong: list[str] = []
    if walk.size != check.size_bytes:
        wrong.append(f"the file has {walk.size} bytes; {check.size_bytes} were written")
    if walk.frames != check.records and not walk.failures:
        wrong.append(f"the file has {walk.frames} records; {check.records} were written")
    if len(walk.expected) != check.records:
        wrong.append(f"the index has {len(walk.expected)} records; {check.records} were written")
    if not walk.failures and walk.crc != check.crc32c:
        wrong.append(f"the file's crc32c is {walk.crc:08x}; {check.crc32c:08x} was written")
    return [Failure(check.name, -1, "", what) for what in wrong]
