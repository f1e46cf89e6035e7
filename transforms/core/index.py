"""The index of a shard: one Parquet row per manifest row of it, and the shard's own account.

A shard counts as finished when its index, written after it, names its size and crc32c.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from transforms.core import files
from transforms.core.files import Fingerprint
from transforms.core.shards import ShardId, ShardInfo, index_name

WRITTEN, REJECTED = "written", "rejected"
_META = b"pairshard"


@dataclass(frozen=True, slots=True)
class IndexRow:
    """What the index says of one manifest row.

    Attributes:
      key, paths: as in `Row`.
      fingerprints: of the files of `paths`; None where one was not read.
      status: 'written' or 'rejected'.
      code, message, file: of the reject; '' for a record.
      offset: where the record's frame begins in the shard, in bytes; -1 for a reject.
      length: of the record's data, in bytes, the frame's 16 not counted; 0 for a reject.
      crc32c: of the record's data.
      height, width: in pixels.
      pixel_counts: (class id, pixels) of the mask, sorted.
      split: as the index says; '' before the row is written: the shard's will be.
    """

    key: str
    paths: tuple[str, ...]
    fingerprints: tuple[Fingerprint | None, ...]
    status: str
    code: str = ""
    message: str = ""
    file: str = ""
    offset: int = -1
    length: int = 0
    crc32c: int = 0
    height: int = 0
    width: int = 0
    pixel_counts: tuple[tuple[int, int], ...] = ()
    split: str = ""


class IndexFileError(Exception):
    """An index can't be read: it is damaged, or of another make."""


def write_index(
    root: str, info: ShardInfo, rows: Sequence[IndexRow], path_columns: Sequence[str]
) -> None:
    """Writes the index of a finished shard; from then on the shard counts as finished."""
    table = _format_table(info, rows, path_columns)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    files.write_file(root, index_name(info.name), sink.getvalue().to_pybytes())


def read_info(path: str) -> ShardInfo | None:
    """Returns a shard's account from its index's metadata, or None where there is no index.

    Raises:
      IndexFileError: the file is no index of ours.
    """
    try:
        with _index_errors(path), files.open_file(path) as file:
            return _parse_info(pq.read_schema(file))
    except FileNotFoundError:
        return None


def read_index(path: str, path_columns: Sequence[str]) -> list[IndexRow]:
    """Reads all rows of an index, in the order of the shard.

    Raises:
      FileNotFoundError: there is none.
      IndexFileError: the file is damaged, or no index of ours.
    """
    table = read_table(path)
    with _index_errors(path):
        return list(_parse_rows(table, path_columns))


def read_table(path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Reads some columns of an index, or all; raises as `read_index` does."""
    with _index_errors(path), files.open_file(path) as file:
        wanted = list(columns) if columns else None
        reader = pq.ParquetFile(file, page_checksum_verification=True)
        _parse_info(reader.schema_arrow)
        if any(pa.types.is_binary(field.type) for field in reader.schema_arrow):
            raise pa.ArrowInvalid("a column of text is one of bytes")
        # Without threads: the file is small, and pyarrow's may be left running at exit.
        return reader.read(columns=wanted, use_threads=False)


@contextmanager
def _index_errors(path: str) -> Iterator[None]:
    """Turns what damaged bytes raise into an IndexFileError.

    Parquet checks its pages' bytes but not its footer's, so names and values there may be
    anything: a damaged footer raises nearly any of these.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
        raise IndexFileError(f"{path} can't be read as an index: {error}") from error


def _format_table(
    info: ShardInfo, rows: Sequence[IndexRow], path_columns: Sequence[str]
) -> pa.Table:
    columns: dict[str, pa.Array] = {
        "key": pa.array([row.key for row in rows], pa.string()),
        "split": pa.array([info.shard.split] * len(rows), pa.string()),
        "status": pa.array([row.status for row in rows], pa.string()),
        "code": pa.array([row.code for row in rows], pa.string()),
        "message": pa.array([row.message for row in rows], pa.string()),
        "file": pa.array([row.file for row in rows], pa.string()),
    }
    for number, name in enumerate(path_columns):
        columns |= _format_source(name, number, rows)
    for name, kind in _NUMBERS.items():
        columns[name] = pa.array([getattr(row, name) for row in rows], kind)
    ids = [[value for value, _ in row.pixel_counts] for row in rows]
    pixels = [[count for _, count in row.pixel_counts] for row in rows]
    columns["class_ids"] = pa.array(ids, pa.list_(pa.int32()))
    columns["class_pixels"] = pa.array(pixels, pa.list_(pa.int64()))
    return pa.table(columns).replace_schema_metadata({_META: _format_info(info)})


_NUMBERS = {
    "offset": pa.int64(),
    "length": pa.int64(),
    "crc32c": pa.uint32(),
    "height": pa.int32(),
    "width": pa.int32(),
}


def _format_source(name: str, number: int, rows: Sequence[IndexRow]) -> dict[str, pa.Array]:
    prints = [row.fingerprints[number] for row in rows]
    return {
        name: pa.array([row.paths[number] for row in rows], pa.string()),
        f"{name}_size": pa.array([p and p.size_bytes for p in prints], pa.int64()),
        f"{name}_mtime_ns": pa.array([p and p.mtime_ns for p in prints], pa.int64()),
        f"{name}_crc32c": pa.array([p and p.crc32c for p in prints], pa.uint32()),
    }


def _parse_rows(table: pa.Table, path_columns: Sequence[str]) -> Iterator[IndexRow]:
    if table["key"].null_count:
        raise pa.ArrowInvalid("a row has no key")
    names = [field.name for field in fields(IndexRow)]
    plain = [name for name in names if name in table.column_names]
    values = [table[name].to_pylist() for name in plain]
    paths = [table[name].to_pylist() for name in path_columns]
    prints = [_parse_source(table, name) for name in path_columns]
    counts = zip(table["class_ids"].to_pylist(), table["class_pixels"].to_pylist(), strict=True)
    for number, (ids, pixels) in enumerate(counts):
        yield IndexRow(
            **{name: column[number] for name, column in zip(plain, values, strict=True)},
            paths=tuple(column[number] for column in paths),
            fingerprints=tuple(column[number] for column in prints),
            pixel_counts=tuple(zip(ids, pixels, strict=True)),
        )


def _parse_source(table: pa.Table, name: str) -> list[Fingerprint | None]:
    columns = (table[f"{name}_{part}"].to_pylist() for part in ("size", "mtime_ns", "crc32c"))
    return [
        None if size is None else Fingerprint(size, mtime, crc)
        for size, mtime, crc in zip(*columns, strict=True)
    ]


def _format_info(info: ShardInfo) -> bytes:
    account = asdict(replace(info, reused=False))
    return json.dumps(account, sort_keys=True, separators=(",", ":")).encode()


def _parse_info(schema: pa.Schema) -> ShardInfo:
    text = (schema.metadata or {}).get(_META)
    if text is None:
        raise pa.ArrowInvalid("it carries no account of a shard")
    account = json.loads(text)
    return ShardInfo(**_tuples(account) | {"shard": ShardId(**account["shard"])})


def _tuples(account: dict[str, Any]) -> dict[str, Any]:
    """Lists back into the tuples that frozen dataclasses hold."""
    return {
        name: tuple(tuple(v) if isinstance(v, list) else v for v in value)
        if isinstance(value, list)
        else value
        for name, value in account.items()
    }
