"""Records against their sources, with TensorFlow's parser and Pillow's own words.

This is the second opinion: it shares no decoding with the build. A record's features are
parsed by TensorFlow, as training will; a source is opened again and is what
`np.array(Image.open(path))` says. It runs in a process of its own (`Comparer`), since
importing TensorFlow costs seconds and half a gigabyte.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache, partial
from typing import TypeVar

import google_crc32c
import numpy as np
from PIL import Image

from transforms.core import files
from transforms.core.child import Child
from transforms.core.errors import ConfigError, PlaceError
from transforms.core.files import Fingerprint
from transforms.core.index import IndexRow
from transforms.core.memory import keep_freed_memory
from transforms.core.pairs import FEATURES
from transforms.core.tfrecord import HEADER_BYTES

Parsed = Mapping[str, bytes | int]
_Parser = Callable[[Sequence[bytes]], list[Parsed]]
_T = TypeVar("_T")
Array = np.ndarray[tuple[int, ...], np.dtype[np.uint8]]

ROWS_PER_CALL = 1024
ROWS_PER_BATCH = 16  # TensorFlow parses them in a fraction of the time of one by one,
BYTES_PER_BATCH = 2 << 20  # as long as they stay in the processor's cache

# The build has judged by --max-pixels; Pillow's own limit would refuse what it let pass.
Image.MAX_IMAGE_PIXELS = None


@dataclass(frozen=True, slots=True)
class CompareTask:
    """Some records of one shard.

    Attributes:
      shard: the file's path.
      payload: 'raw' or 'encoded'.
      source_root: where the sources are now.
      rows: of the index, one per record.
      threads: that compare.
    """

    shard: str
    payload: str
    source_root: str
    rows: Sequence[IndexRow]
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Difference:
    """A record that is not what its sources say.

    Attributes:
      row: its index row.
      what: differs.
      source_changed: a source is another one than at the build, so nothing can be said.
    """

    row: IndexRow
    what: str
    source_changed: bool = False


class Comparer:
    """A process that compares, while this one reads the frames of the next shard.

    It imports TensorFlow as soon as it is there.
    """

    def __init__(self, payload: str) -> None:
        self._child = Child()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="compare")
        self._ready = self._executor.submit(self._child.call, prepare, payload)

    def submit(
        self, task: CompareTask, on_records: Callable[[int], None]
    ) -> Future[list[Difference]]:
        """Begins a comparison; tasks are done one after another.

        Args:
          task: the records; as many as a shard may hold.
          on_records: called, in another thread, with numbers of records that are done.
        """
        return self._executor.submit(self._compare, task, on_records)

    def close(self) -> None:
        """Ends the process, and what it may be doing."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._child.close()

    def _compare(self, task: CompareTask, on_records: Callable[[int], None]) -> list[Difference]:
        def count(note: object) -> None:
            on_records(note if isinstance(note, int) else 0)

        self._ready.result()
        found: list[Difference] = []
        for start in range(0, len(task.rows), ROWS_PER_CALL):
            rows = task.rows[start : start + ROWS_PER_CALL]
            part = CompareTask(task.shard, task.payload, task.source_root, rows, task.threads)
            answer = self._child.call(compare_records, part, on_note=count)
            assert isinstance(answer, list)
            found += answer
        return found


def prepare(payload: str, note: Callable[[object], None]) -> None:
    """Loads what `compare_records` needs."""
    keep_freed_memory()
    _load_parser(payload)


def compare_records(task: CompareTask, note: Callable[[object], None]) -> list[Difference]:
    """Compares records with their sources, pixel by pixel.

    Args:
      task: the records.
      note: called with numbers of records that are done.

    Returns:
      Those that differ, in the order of the task.

    Raises:
      PlaceError: a shard or a source can't be read for a reason that is not its own.
    """
    found: list[Difference] = []
    parse = _load_parser(task.payload)
    batches = [*_make_batches(task.rows)]
    with (
        files.place_errors(task.shard, "reading"),
        open(task.shard, "rb") as shard,
        ThreadPoolExecutor(task.threads) as executor,
    ):
        compare = partial(_compare_batch, task, parse, shard.fileno())
        for batch, differences in zip(batches, executor.map(compare, batches), strict=True):
            found += differences
            note(len(batch))
    return found


class _ChangedError(Exception):
    """A source is missing, or its bytes are not those of the build."""


class _WrongError(Exception):
    """The record can't be parsed, or the source not decoded."""


@lru_cache
def _load_parser(payload: str) -> _Parser:
    """Returns TensorFlow's parser for the features of a payload."""
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    try:
        import tensorflow as tf  # noqa: PLC0415 - here alone, and only in a process of its own
    except ImportError as error:
        raise ConfigError(
            f"verification parses records with TensorFlow, which can't be imported: {error}. "
            "Install it, or build with --verify none"
        ) from error
    # One record is parsed in no time; a pool of threads would only wake up for it.
    with suppress(RuntimeError):  # where TensorFlow has been used in this process already
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    dtypes = {"int64": tf.int64, "bytes": tf.string}
    features = {
        name: tf.io.FixedLenFeature([], dtypes[spec.dtype])
        for name, spec in FEATURES[payload].items()
    }

    def parse(records: Sequence[bytes]) -> list[Parsed]:
        try:
            parsed = tf.io.parse_example(records, features)
        except tf.errors.OpError as error:
            reason = " ".join(str(error.message).split())[:300]
            raise _WrongError(f"TensorFlow can't parse the record: {reason}") from error
        columns = [value.numpy().tolist() for value in parsed.values()]
        return [dict(zip(parsed, values, strict=True)) for values in zip(*columns, strict=True)]

    return parse


def _make_batches(rows: Sequence[IndexRow]) -> Iterator[list[IndexRow]]:
    batch: list[IndexRow] = []
    size_bytes = 0
    for row in rows:
        size_bytes += row.length
        if batch and (len(batch) == ROWS_PER_BATCH or size_bytes > BYTES_PER_BATCH):
            yield batch
            batch, size_bytes = [], row.length
        batch.append(row)
    if batch:
        yield batch


def _compare_batch(
    task: CompareTask, parse: _Parser, shard: int, rows: Sequence[IndexRow]
) -> list[Difference]:
    records = [os.pread(shard, row.length, row.offset + HEADER_BYTES) for row in rows]
    pairs = zip(rows, _parse_all(parse, records), strict=True)
    differences = [_compare_row(task, row, parsed) for row, parsed in pairs]
    return [difference for difference in differences if difference]


def _parse_all(parse: _Parser, records: Sequence[bytes]) -> Sequence[Parsed | _WrongError]:
    """Parses records at once, or, if one of them is wrong, one by one."""
    try:
        return parse(records)
    except _WrongError as wrong:
        if len(records) == 1:
            return [wrong]
        return [parsed for record in records for parsed in _parse_all(parse, [record])]


def _compare_row(
    task: CompareTask, row: IndexRow, parsed: Parsed | _WrongError
) -> Difference | None:
    if isinstance(parsed, _WrongError):
        return Difference(row, str(parsed))
    try:
        image, mask = (
            _read_source(task.source_root, path, known)
            for path, known in zip(row.paths, row.fingerprints, strict=True)
        )
        differences = _compare_raw if task.payload == "raw" else _compare_encoded
        what = "; ".join(differences(parsed, image, mask, row))
    except _ChangedError as changed:
        return Difference(row, str(changed), source_changed=True)
    except _WrongError as wrong:
        return Difference(row, str(wrong))
    return Difference(row, what) if what else None


def _read_source(root: str, path: str, known: Fingerprint | None) -> bytes:
    """Reads a source's bytes, if they are those of the build."""
    try:
        with open(os.path.join(root, path), "rb") as file:
            data, status = file.read(), os.fstat(file.fileno())
    except (FileNotFoundError, NotADirectoryError, PermissionError, IsADirectoryError) as error:
        if not os.path.isdir(root):
            raise PlaceError(f"the source root {root} is not there any more") from error
        raise _ChangedError(f"{path} can't be read now: {error.strerror}") from error
    except OSError as error:
        raise PlaceError(f"reading {os.path.join(root, path)} failed: {error.strerror}") from error
    now = Fingerprint(len(data), status.st_mtime_ns, google_crc32c.value(data))
    if known is not None and known.crc32c != now.crc32c:
        raise _ChangedError(
            f"{path} is not the file of the build: {_describe(now)} now, {_describe(known)} then"
        )
    return data


def _describe(found: Fingerprint) -> str:
    time = datetime.fromtimestamp(found.mtime_ns // 10**9, timezone.utc)
    crc = f"{found.crc32c:08x}" if found.crc32c is not None else "unknown"
    return f"{found.size_bytes} bytes of {time:%Y-%m-%d %H:%M:%S} UTC with crc32c {crc}"


def _compare_raw(parsed: Parsed, image: bytes, mask: bytes, row: IndexRow) -> Iterator[str]:
    pixels = _open(image, row.paths[0], lambda file: np.array(Image.open(file).convert("RGB")))
    ids = _open(mask, row.paths[1], lambda file: np.array(Image.open(file)))
    yield from _compare_sizes(parsed["height"], parsed["width"], pixels.shape, ids.shape, row)
    yield from _compare_array("image_raw", parsed["image_raw"], pixels, row.paths[0])
    yield from _compare_array("mask_raw", parsed["mask_raw"], ids, row.paths[1])


def _compare_encoded(parsed: Parsed, image: bytes, mask: bytes, row: IndexRow) -> Iterator[str]:
    form, width, height = _open(image, row.paths[0], _read_header)
    ids = _open(mask, row.paths[1], lambda file: np.array(Image.open(file)))
    found = (parsed["image/height"], parsed["image/width"])
    yield from _compare_sizes(*found, (height, width), ids.shape, row)
    if parsed["image/encoded"] != image:
        yield f"image/encoded: is not the bytes of {row.paths[0]}"
    expected = {
        "image/format": form.lower().replace("mpo", "jpeg").encode(),
        "image/filename": row.paths[0].encode("utf-8", "surrogatepass"),
        "image/channels": 3,
        "image/segmentation/class/format": b"png",
    }
    for name, value in expected.items():
        if parsed[name] != value:
            yield f"{name}: is {parsed[name]!r}, expected {value!r}"
    name = "image/segmentation/class/encoded"
    yield from _compare_array(name, _decode_png(parsed[name], name), ids, row.paths[1])


def _read_header(file: io.BytesIO) -> tuple[str, int, int]:
    opened = Image.open(file)
    return opened.format or "", opened.width, opened.height


def _open(data: bytes, path: str, decode: Callable[[io.BytesIO], _T]) -> _T:
    try:
        return decode(io.BytesIO(data))
    except MemoryError:
        raise
    except Exception as error:  # whatever Pillow raises; the build did decode these bytes
        raise _WrongError(f"{path}: Pillow can't decode it now: {error}") from error


def _decode_png(data: bytes | int, name: str) -> bytes:
    """Decodes with TensorFlow's eyes: training must see ids, not grey levels of colours."""
    import tensorflow as tf  # noqa: PLC0415 - see _load_parser

    try:
        return bytes(tf.io.decode_png(data, channels=1).numpy().tobytes())
    except tf.errors.OpError as error:
        raise _WrongError(f"{name}: TensorFlow can't decode it: {error.message}") from error


def _compare_sizes(
    height: bytes | int,
    width: bytes | int,
    image: tuple[int, ...],
    mask: tuple[int, ...],
    row: IndexRow,
) -> Iterator[str]:
    """Compares a record's size with those of both sources, and with the index's."""
    others = {row.paths[0]: image, row.paths[1]: mask, "the index": (row.height, row.width)}
    for where, size in others.items():
        if (height, width) != size[:2]:
            yield f"size: is {height!r}×{width!r} (height×width), in {where} {size[0]}×{size[1]}"


def _compare_array(name: str, found: bytes | int, expected: Array, path: str) -> Iterator[str]:
    """Compares bytes with an array (uint8, row-major), and says where they begin to differ."""
    values = np.frombuffer(found if isinstance(found, bytes) else b"", np.uint8)
    if values.size != expected.size:
        yield f"{name}: has {values.size} bytes, {path} has {expected.size} values"
        return
    if np.array_equal(values, expected.ravel()):
        return
    wrong = np.flatnonzero(values != expected.ravel())
    first = np.unravel_index(wrong[0], expected.shape)
    place = ", ".join(map(str, map(int, first)))
    yield (
        f"{name}: {wrong.size} of {values.size} values differ from {path}, first at "
        f"[{place}]: {values[wrong[0]]}, expected {expected[first]}"
    )
