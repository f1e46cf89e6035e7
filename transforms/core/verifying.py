"""Reads a shard back: its frames against its index, its bytes against its account.

What stands in the records is compared with the sources in `transforms.core.comparing`.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from transforms.core import files, index, keys
from transforms.core.aligning import Alignment, FoundFrame, Misfit, align
from transforms.core.index import REJECTED, WRITTEN, IndexFileError, IndexRow
from transforms.core.pairs import PATH_COLUMNS
from transforms.core.placing import check_places
from transforms.core.shards import IndexSums, ShardInfo, index_name, parse_shard_name
from transforms.core.tfrecord import (
    FRAME_BYTES,
    HEADER_BYTES,
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
      seed: of the order of its rows.
      sampled: whether records of it may be compared with their sources.
    """

    name: str
    records: int
    size_bytes: int
    crc32c: int
    seed: int
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
class Findings:
    """What reading a shard and its index found.

    Attributes:
      good: index rows of the records that stand whole in their place.
      failures: all that is wrong, sorted.
      sums: of the index; None: it can't be read.
    """

    good: list[IndexRow]
    failures: list[Failure]
    sums: IndexSums | None


@dataclass(frozen=True, slots=True)
class VerifyInfo:
    """What was found out about one shard.

    Attributes:
      name: of its file.
      records: that it should have.
      compared: records that were compared with their sources; one whose source is another
        one now is not.
      failures: sorted by offset.
      sums: of its index; None: it can't be read.
    """

    name: str
    records: int
    compared: int
    failures: tuple[Failure, ...]
    sums: IndexSums | None


def check_shard(
    folder: str, check: ShardCheck, on_record: Callable[[str], None] = lambda key: None
) -> Findings:
    """Reads a shard and its index whole.

    Checks the frames' CRCs and lengths, that they are the records that the index names, in
    that order and at those offsets, their number, and the size and CRC-32C of the file; and
    that each row of the index belongs in its place.

    Args:
      folder: of the data set.
      check: what the shard has to be.
      on_record: called after each frame with its record's key; '' where that is not known.
    """
    known = _read_index(folder, check)
    found = _read_frames(folder, check, known, on_record)
    failures = [
        *(Failure(check.name, fit.offset, fit.key, fit.what) for fit in found.misfits),
        *(Failure(check.name, fit.offset, fit.key, fit.what) for fit in known.misfits),
        *(Failure(check.name, -1, "", what) for what in known.wrong),
    ]
    return Findings(found.good, sorted(failures), known.sums)


def _read_frames(
    folder: str, check: ShardCheck, known: _Index, on_record: Callable[[str], None]
) -> Alignment:
    """Holds a shard's frames against its index, and the file against its account."""
    path = os.path.join(folder, check.name)
    try:
        file = files.open_file(path)
    except FileNotFoundError:
        return Alignment([], [Misfit(-1, "", f"{check.name} is missing")])
    walk = _Walk({row.offset: row for row in known.records}, files.file_size(path) or 0)
    with file, files.place_errors(path, "reading"):
        walk.run(file, on_record)
    found = align(known.records, walk.frames) if known.sums else _judge_alone(walk.frames)
    wrong = [Misfit(-1, "", what) for what in _check_account(check, walk, found)]
    return Alignment(found.good, [*wrong, *found.misfits])


def is_sampled(key: str, *, seed: int, threshold: int) -> bool:
    """Tells whether a record is to be compared: its rank is below the threshold."""
    return threshold >= RANKS or keys.verify_rank(key, seed=seed) < threshold


@dataclass(slots=True)
class _Walk:
    """Reads a shard's frames one after another; no more than one of them is in memory.

    A broken frame says nothing about where the next begins, unless its length is sound: then
    the index does.

    Attributes:
      rows: of the records that are expected, by offset.
      size: of the file, in bytes.
      frames: that were found.
      crc: of all the bytes, if no frame is broken.
    """

    rows: Mapping[int, IndexRow]
    size: int
    frames: list[FoundFrame] = field(default_factory=list)
    crc: int = 0

    def run(self, file: BinaryIO, on_record: Callable[[str], None]) -> None:
        offsets = sorted(self.rows)
        offset = 0
        while offset < self.size:
            file.seek(offset)
            try:
                frame = read_frame(file, offset, limit=self.size)
            except FrameError as error:
                self.frames.append(FoundFrame(offset, reason=error.reason))
                on_record("")
                offset = _find_next(file, offset, self.size, offsets)
                continue
            if frame is None:
                break
            self._take(FoundFrame(offset, len(frame.data), frame.crc32c), frame.data, on_record)
            offset += len(frame.data) + FRAME_BYTES

    def _take(self, frame: FoundFrame, data: bytes, on_record: Callable[[str], None]) -> None:
        pieces = [format_header(frame.length), data, format_footer(frame.crc32c)]
        self.crc = crc32c_of(pieces, self.crc)
        self.frames.append(frame)
        row = self.rows.get(frame.offset)
        known = row and (row.length, row.crc32c) == (frame.length, frame.crc32c)
        on_record(row.key if row and known else "")


def _find_next(file: BinaryIO, offset: int, limit: int, offsets: Sequence[int]) -> int:
    """Returns where to go on behind a broken frame."""
    file.seek(offset)
    header = file.read(HEADER_BYTES)
    length = int.from_bytes(header[:8], "little")
    end = offset + length + FRAME_BYTES
    if header == format_header(length) and end <= limit:
        return end
    behind = bisect_right(offsets, offset)
    return offsets[behind] if behind < len(offsets) else limit


@dataclass(slots=True)
class _Index:
    """What a shard's index says.

    Attributes:
      records: by offset.
      sums: of its rows; None: it can't be read.
      misfits: rows that don't belong in their place.
      wrong: with the index as a whole.
    """

    records: list[IndexRow] = field(default_factory=list)
    sums: IndexSums | None = None
    misfits: list[Misfit] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def _read_index(folder: str, check: ShardCheck) -> _Index:
    name = index_name(check.name)
    path = os.path.join(folder, name)
    try:
        rows = index.read_index(path, PATH_COLUMNS)
        info = index.read_info(path)
    except FileNotFoundError:
        return _Index(wrong=[f"{name} is missing"])
    except IndexFileError as error:
        return _Index(wrong=[str(error).replace(folder + os.sep, "")])
    sums = _sum_up(rows)
    written = sorted((row for row in rows if row.status == WRITTEN), key=lambda row: row.offset)
    wrong = [*_check_info(info, check, len(written), len(rows))] if info else []
    if info and sums != IndexSums(info.rejected, info.pixel_counts):
        wrong.append("the index's rows have other rejects or pixels than were written into it")
    shard = parse_shard_name(check.name)
    misfits = check_places(rows, shard, seed=check.seed) if shard else []
    return _Index(written, sums, misfits, wrong)


def _sum_up(rows: Sequence[IndexRow]) -> IndexSums:
    rejected = Counter(row.code for row in rows if row.status == REJECTED)
    pixels: Counter[int] = Counter()
    for row in rows:
        for value, number in row.pixel_counts:
            pixels[value] += number
    return IndexSums(keys.sort_counts(rejected), tuple(sorted(pixels.items())))


def _check_info(info: ShardInfo, check: ShardCheck, written: int, rows: int) -> Iterator[str]:
    """Holds the index against the account: an index of another build has other numbers."""
    if (info.size_bytes, info.crc32c) != (check.size_bytes, check.crc32c):
        yield (
            f"the index is of a file of {info.size_bytes} bytes and crc32c {info.crc32c:08x}; "
            f"{check.size_bytes} bytes and {check.crc32c:08x} were written"
        )
    if written != check.records:
        yield f"the index has {written} records; {check.records} were written"
    if rows != info.rows:
        yield f"the index has {rows} rows; {info.rows} were written into it"


def _judge_alone(frames: Iterable[FoundFrame]) -> Alignment:
    """What can be said of frames without an index."""
    return Alignment([], [Misfit(f.offset, "", f.reason) for f in frames if f.reason])


def _check_account(check: ShardCheck, walk: _Walk, found: Alignment) -> list[str]:
    """Holds size, number and CRC of the file against its account."""
    wrong: list[str] = []
    if walk.size != check.size_bytes:
        wrong.append(f"the file has {walk.size} bytes; {check.size_bytes} were written")
    if len(walk.frames) != check.records:
        wrong.append(f"the file has {len(walk.frames)} records; {check.records} were written")
    if walk.crc != check.crc32c and not found.misfits:
        wrong.append(f"the file's crc32c is {walk.crc:08x}; {check.crc32c:08x} was written")
    return wrong
