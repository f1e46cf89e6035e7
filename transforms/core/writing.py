"""Rows to one shard: read, decode, check, encode and write, as a stream.

One task is one shard. Its rows are worked on by threads, a few ahead of the one that is
written next (Pillow lets go of the interpreter lock while it decodes), so memory grows with
neither the shard nor the data set. Where pictures are large, `Budget` lets fewer be at work.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Condition
from typing import TypeVar

from transforms.core import files, index, keys
from transforms.core.child import Child
from transforms.core.errors import DataError
from transforms.core.files import Fingerprint, OutputFile, Source
from transforms.core.index import REJECTED, WRITTEN, IndexRow
from transforms.core.memory import keep_freed_memory
from transforms.core.pairs import PATH_COLUMNS, Record, encode_pair
from transforms.core.rows import Reject, Row
from transforms.core.settings import RecordSettings
from transforms.core.shards import ShardId, ShardInfo, ShardTask, building_name, index_name
from transforms.core.tfrecord import FRAME_BYTES, crc32c_of, format_footer, format_header, join_crcs

In = TypeVar("In")
Out = TypeVar("Out")

ROWS_AHEAD_PER_THREAD = 2
BYTES_AHEAD = 256 << 20
ROWS_PER_NOTE = 16


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What every shard of a build has in common.

    Attributes:
      source_root: the folder that sources are named from.
      output: the data set's folder.
      settings: of the records.
      digest: `settings.record_digest` of the build.
      check_crc: whether a shard that is found finished is read once more before it is kept.
      check_only: nothing is written; a shard that would be built is left out.
    """

    source_root: str
    output: str
    settings: RecordSettings
    digest: str
    check_crc: bool = False
    check_only: bool = False


@dataclass(frozen=True, slots=True)
class ShardResult:
    """What became of a task.

    Attributes:
      shard: of the task.
      info: of the finished shard; None: it would be built, were it not for `check_only`.
      rejects: among its rows, in order.
    """

    shard: ShardId
    info: ShardInfo | None
    rejects: tuple[Reject, ...]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of a row: a record, or the error that made it a reject."""

    fingerprints: tuple[Fingerprint | None, ...]
    record: Record | None = None
    error: DataError | None = None


def write_shard(
    task: ShardTask,
    name: str,
    options: WriteOptions,
    *,
    executor: Executor | None = None,
    threads: int = 1,
    on_row: Callable[[bool], None] = lambda rejected: None,
) -> ShardResult:
    """Builds one shard and its index, or keeps the one that is there.

    Args:
      task: the shard and its rows, in order.
      name: of the shard's file.
      options: what all shards have in common.
      executor: decodes rows ahead; None: they are decoded one by one in this thread.
      threads: that the executor has.
      on_row: called after each row that was worked on, with whether it was rejected.

    Raises:
      PlaceError: the disk is full, the source root has vanished, …
    """
    digest = shard_digest(task, options.digest)
    kept = reuse_shard(task, name, digest, options)
    if kept or options.check_only:
        return kept or ShardResult(task.shard, None, ())
    files.write_file(options.output, building_name(name), b"")
    files.remove_file(os.path.join(options.output, index_name(name)))

    writer, budget = _ShardWriter(), Budget(BYTES_AHEAD)

    def encode(numbered: tuple[int, Row]) -> _Outcome:
        number, row = numbered
        return encode_row(row, options, admit=partial(budget.take, number))

    with files.create_file(options.output, name) as file, closing(budget):
        ahead = threads * ROWS_AHEAD_PER_THREAD
        outcomes = map_ahead(executor, encode, enumerate(task.rows), ahead=ahead)
        for row, outcome in zip(task.rows, outcomes, strict=True):
            writer.add(row, outcome, file)
            budget.release()
            on_row(outcome.record is None)
    info = writer.finish(task, name, digest)
    index.write_index(options.output, info, writer.rows, PATH_COLUMNS)
    files.remove_file(os.path.join(options.output, building_name(name)))
    return ShardResult(task.shard, info, find_rejects(task, writer.rows))


def write_shard_in_child(
    child: Child,
    task: ShardTask,
    name: str,
    options: WriteOptions,
    *,
    threads: int,
    on_row: Callable[[bool], None],
) -> ShardResult:
    """Does what `write_shard` does in another process; arguments and errors are its."""

    def count(note: object) -> None:
        for rejected in note if isinstance(note, list) else []:
            on_row(rejected)

    result = child.call(_write_shard_here, task, name, options, threads, on_note=count)
    assert isinstance(result, ShardResult)
    return result


def _write_shard_here(
    task: ShardTask,
    name: str,
    options: WriteOptions,
    threads: int,
    note: Callable[[object], None],
) -> ShardResult:
    """The child's side of `write_shard_in_child`; notes are sent for some rows at once."""
    keep_freed_memory()
    done: list[bool] = []

    def count(rejected: bool) -> None:
        done.append(rejected)
        if len(done) >= ROWS_PER_NOTE:
            note(list(done))
            done.clear()

    with ThreadPoolExecutor(threads) as executor:
        result = write_shard(
            task,
            name,
            options,
            executor=executor if threads > 1 else None,
            threads=threads,
            on_row=count,
        )
    note(done)
    return result


def reuse_shard(
    task: ShardTask, name: str, digest: str, options: WriteOptions
) -> ShardResult | None:
    """Returns the shard that is there already, if building it again would give the same bytes.

    It does where its index carries the same digest of rows and settings, its size agrees, and
    its sources, rejected rows' too, have the size and mtime that the index has. A source that
    could not be opened must still refuse to be, because `chmod` changes neither.
    """
    index_path = os.path.join(options.output, index_name(name))
    try:
        info = index.read_info(index_path)
        if info is None or info.digest != digest or not _is_whole(info, options):
            return None
        rows = index.read_index(index_path, PATH_COLUMNS)
    except index.IndexFileError:
        return None
    files.forget_folders()
    if not all(
        _is_unchanged(row, found, options) for row, found in zip(task.rows, rows, strict=True)
    ):
        return None
    return ShardResult(task.shard, replace(info, reused=True), find_rejects(task, rows))


def shard_digest(task: ShardTask, settings_digest: str) -> str:
    """Returns the digest of a shard's settings and of its rows in their order."""
    shard = task.shard
    rows = [f"{digest_row(shard.split, row):x}" for row in task.rows]
    return keys.digest_of(
        [settings_digest, shard.split, shard.index, shard.num_shards, PATH_COLUMNS, rows]
    )


def digest_row(split: str, row: Row) -> int:
    """Returns what a row adds to the order-free digest of the rows."""
    return keys.row_digest(row.key, split, row.paths, row.code, row.message)


def encode_row(
    row: Row, options: WriteOptions, *, admit: Callable[[int], None] = lambda size_bytes: None
) -> _Outcome:
    """Reads a row's sources and encodes its record; a DataError becomes part of the outcome.

    Args:
      row: of the manifest.
      options: what all shards have in common.
      admit: called with the bytes that are about to be read or decoded; it may wait.
    """
    if row.code:
        at_fault = (path for path in row.paths if repr(path) in row.message)
        error = DataError(row.code, row.message, path=next(at_fault, row.paths[0]))
        return _Outcome((None,) * len(row.paths), error=error)
    sources: list[Source] = []
    try:
        inside = options.settings.inside_root
        for path in row.paths:
            source = files.read_source(options.source_root, path, inside_root=inside, admit=admit)
            sources.append(source)
        record = encode_pair(row.paths, sources, options.settings, admit=admit)
    except DataError as error:
        return _Outcome(_fingerprints(row, sources, options.source_root), error=error)
    return _Outcome(tuple(source.fingerprint for source in sources), record)


def map_ahead(
    executor: Executor | None,
    function: Callable[[In], Out],
    items: Iterable[In],
    *,
    ahead: int,
) -> Iterator[Out]:
    """Yields function(item) in the order of the items, some of them worked on ahead.

    Args:
      executor: does the work; None: it is done here, one by one.
      function: is called with each item.
      items: in the order of the results.
      ahead: how many may be at work beside the one that is waited for.
    """
    if executor is None:
        yield from map(function, items)
        return
    waiting: deque[Future[Out]] = deque()
    try:
        for item in items:
            waiting.append(executor.submit(function, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


class Budget:
    """Bytes that may be held by rows at work, or done and waiting for their turn to be written.

    They are known from sizes of files and headers of pictures before these are read or decoded,
    so that memory is bounded from the first row on, however many threads there are. The row that
    is written next never waits, for only its end gives bytes back.

    Args:
      size_bytes: that rows may hold together.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._changed = Condition()
        self._held: defaultdict[int, int] = defaultdict(int)
        self._total = 0
        self._next = 0
        self._closed = False

    def take(self, number: int, size_bytes: int) -> None:
        """Waits until a row may hold more bytes.

        Raises:
          CancelledError: the shard has ended meanwhile.
        """

        def may_go_on() -> bool:
            fits = self._total + size_bytes <= self._size_bytes
            return fits or number == self._next or self._closed

        with self._changed:
            self._changed.wait_for(may_go_on)
            if self._closed:
                raise CancelledError
            self._held[number] += size_bytes
            self._total += size_bytes

    def release(self) -> None:
        """Gives back what the next row in order held: it is written."""
        with self._changed:
            self._total -= self._held.pop(self._next, 0)
            self._next += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Lets threads that wait end, where the shard fails."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def find_rejects(task: ShardTask, rows: Sequence[IndexRow]) -> tuple[Reject, ...]:
    """Returns the rejects among a shard's index rows, with the places of the task's rows."""
    return tuple(
        Reject(
            key=found.key,
            paths=found.paths,
            split=task.shard.split,
            code=found.code,
            message=found.message,
            file=found.file,
            manifest=row.manifest,
            line=row.line,
        )
        for row, found in zip(task.rows, rows, strict=True)
        if found.status == REJECTED
    )


@dataclass(slots=True)
class _ShardWriter:
    """The account of a shard while it is written."""

    rows: list[IndexRow] = field(default_factory=list)
    offset: int = 0
    crc: int = 0
    pixels: Counter[int] = field(default_factory=Counter)

    def add(self, row: Row, outcome: _Outcome, file: OutputFile) -> None:
        if outcome.record is not None:
            self._add_record(row, outcome.fingerprints, outcome.record, file)
        elif outcome.error is not None:
            error = outcome.error
            self.rows.append(
                IndexRow(
                    key=row.key,
                    paths=row.paths,
                    fingerprints=outcome.fingerprints,
                    status=REJECTED,
                    code=error.code,
                    message=error.message,
                    file=error.path,
                )
            )

    def _add_record(
        self,
        row: Row,
        fingerprints: tuple[Fingerprint | None, ...],
        record: Record,
        file: OutputFile,
    ) -> None:
        header, footer = format_header(record.size_bytes), format_footer(record.crc32c)
        file.write([header, *record.pieces, footer])
        self.crc = crc32c_of([header], self.crc)
        self.crc = join_crcs(self.crc, record.crc32c, record.size_bytes)
        self.crc = crc32c_of([footer], self.crc)
        self.rows.append(
            IndexRow(
                key=row.key,
                paths=row.paths,
                fingerprints=fingerprints,
                status=WRITTEN,
                offset=self.offset,
                length=record.size_bytes,
                crc32c=record.crc32c,
                height=record.height,
                width=record.width,
                pixel_counts=record.pixel_counts,
            )
        )
        self.offset += record.size_bytes + FRAME_BYTES
        self.pixels.update(dict(record.pixel_counts))

    def finish(self, task: ShardTask, name: str, digest: str) -> ShardInfo:
        written = [row for row in self.rows if row.status == WRITTEN]
        codes = Counter(row.code for row in self.rows if row.status == REJECTED)
        split = task.shard.split
        return ShardInfo(
            shard=task.shard,
            name=name,
            records=len(written),
            size_bytes=self.offset,
            crc32c=self.crc,
            rows=len(self.rows),
            rejected=keys.sort_counts(codes),
            pixel_counts=tuple(sorted(self.pixels.items())),
            heights=_range([row.height for row in written]),
            widths=_range([row.width for row in written]),
            digest=digest,
            rows_digest=keys.add_digests(digest_row(split, row) for row in task.rows),
        )


def _range(values: Sequence[int]) -> tuple[int, int]:
    return (min(values), max(values)) if values else (0, 0)


def _fingerprints(row: Row, sources: Sequence[Source], root: str) -> tuple[Fingerprint | None, ...]:
    """Of the sources that were read, and of those that were not, as far as they are there."""
    unread = row.paths[len(sources) :]
    return (
        *(source.fingerprint for source in sources),
        *(files.stat_source(root, path) for path in unread),
    )


def _is_whole(info: ShardInfo, options: WriteOptions) -> bool:
    """Whether the shard's file is the one that its index speaks of."""
    path = os.path.join(options.output, info.name)
    if files.file_size(path) != info.size_bytes:
        return False
    return not options.check_crc or files.crc32c_of_file(path) == info.crc32c


def _is_unchanged(row: Row, found: IndexRow, options: WriteOptions) -> bool:
    """Whether a row's sources are as the index has them, as far as can be told unread."""
    if row.code:
        return True  # rejected before its files were looked at
    root, inside = options.source_root, options.settings.inside_root
    if found.code in ("not_readable", "path_outside_root"):
        fault = files.find_fault(root, found.file, inside_root=inside)
        if fault is None or (fault.code, fault.message) != (found.code, found.message):
            return False
    return all(
        _same(known, files.stat_source(root, path))
        for known, path in zip(found.fingerprints, found.paths, strict=True)
    )


def _same(known: Fingerprint | None, now: Fingerprint | None) -> bool:
    if known is None or now is None:
        return known is now
    return (known.size_bytes, known.mtime_ns) == (now.size_bytes, now.mtime_ns)
