"""Reads data sets and writes manifests, for tests; shares no reading code with the product."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq

MTIMES = ("image_mtime_ns", "mask_mtime_ns")


def is_published(folder: Path) -> bool:
    return os.path.lexists(folder / "dataset.json")


def read_files(folder: Path) -> dict[str, bytes]:
    """All files of a data set but run.json, by name."""
    names = (path for path in folder.rglob("*") if path.is_file())
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in names}
    found.pop("run.json", None)
    return found


def differing(folder: Path, expected: Path) -> list[str]:
    """The names of files that are not the same in both data sets, run.json left out."""
    found, wanted = read_files(folder), read_files(expected)
    return sorted(name for name in found | wanted if found.get(name) != wanted.get(name))


def look_at(folder: Path) -> dict[str, tuple[int, ...]]:
    """What a write would change: inode, size and time of change of all that is in a folder."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        status = path.lstat()
        found[str(path)] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def shard_names(folder: Path, split: str = "train") -> list[str]:
    return sorted(path.name for path in folder.glob(f"{split}-*.tfrecord"))


def read_records(path: Path) -> Iterator[bytes]:
    """The records of a TFRecord file, unchecked."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        yield data[at + 12 : at + 12 + size]
        at += size + 16


def read_index(folder: Path, shard: str) -> list[dict[str, object]]:
    """The rows of a shard's index."""
    name = shard.removesuffix(".tfrecord") + ".parquet"
    return pq.read_table(folder / "index" / name).to_pylist()


def read_all_indexes(folder: Path) -> list[dict[str, object]]:
    """The rows of all indexes, in the order of the shards' names."""
    names = sorted(path.name for path in folder.glob("*.tfrecord"))
    return [row for name in names for row in read_index(folder, name)]


def keys_of(folder: Path, shard: str) -> list[str]:
    """The keys of a shard's records, in the order of their offsets."""
    rows = [row for row in read_index(folder, shard) if row["status"] == "written"]
    return [row["key"] for row in sorted(rows, key=lambda row: row["offset"])]


def read_json(folder: Path, name: str) -> dict:
    return json.loads((folder / name).read_text("utf-8"))


def read_rejects(folder: Path) -> list[dict[str, str]]:
    lines = (folder / "rejects.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def read_rows(manifest: Path) -> list[list[str]]:
    """The cells of a CSV manifest without quotes, its header left out."""
    lines = manifest.read_text("utf-8").splitlines()
    return [line.split(",") for line in lines[1:]]


def write_csv(path: Path, rows: Iterable[Iterable[str]], head: str = "image,mask") -> Path:
    """Writes a manifest; the cells must need no quotes."""
    text = "".join(",".join(row) + "\n" for row in [head.split(","), *rows])
    path.write_text(text, "utf-8")
    return path
