"""Rejects as JSON lines, and the two accounts of a data set: dataset.json and run.json."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields

from transforms.core import files, keys
from transforms.core.pairs import FEATURES, PATH_COLUMNS
from transforms.core.rows import Reject
from transforms.core.settings import (
    FORMAT_VERSION,
    RecordSettings,
    ShardSettings,
    decoder_versions,
    format_splits,
    record_digest,
)
from transforms.core.shards import ShardInfo

DATASET, RUN, REJECTS = "dataset.json", "run.json", "rejects.jsonl"
REJECT_PARTS = "rejects"
BAD_ROWS = "bad-"
_PART = ".rejects"  # no reader's glob of *.tfrecord must find a part that is named after a shard
_FIELDS = [field.name for field in fields(Reject)]


def format_rejects(rejects: Iterable[Reject]) -> bytes:
    """Returns rejects with their places as lines, to be parsed by `parse_rejects`."""
    return b"".join(
        json.dumps([getattr(reject, name) for name in _FIELDS]).encode() + b"\n"
        for reject in rejects
    )


def parse_rejects(data: bytes) -> Iterator[Reject]:
    """Yields what `format_rejects` was given."""
    for line in data.splitlines():
        key, paths, *others = json.loads(line)
        yield Reject(key, tuple(paths), *others)


def write_rejects(folder: str, part: str, lines: bytes) -> None:
    """Writes the lines of some rejects to a file of their own below `folder`."""
    files.write_file(folder, f"{REJECT_PARTS}/{part}{_PART}", lines)


def read_rejects(folder: str, part: str) -> Iterator[Reject]:
    """Yields the rejects that were written as `part`; none where there was nothing to write."""
    return parse_rejects(files.read_file(os.path.join(folder, REJECT_PARTS, part + _PART)) or b"")


def sorted_rejects(folder: str, shards: Sequence[ShardInfo]) -> Iterator[Reject]:
    """Yields all rejects: lines that are no rows first, then split by split in order.

    That sequence depends neither on the number of shards nor on the manifests' order, and
    in memory are the rejects of one shard, and the lines that are no rows.
    """
    names = files.list_files(f"{folder}/{REJECT_PARTS}")
    bad = [name.removesuffix(_PART) for name in names if name.startswith(BAD_ROWS)]
    yield from sorted(reject for part in bad for reject in read_rejects(folder, part))
    for shard in sorted(shards, key=lambda info: info.shard):
        if shard.rejected:
            yield from read_rejects(folder, shard.name)


def format_reject(reject: Reject) -> str:
    """Returns a line of rejects.jsonl: all but where the row stood, empty fields left out."""
    entry: dict[str, object] = {"code": reject.code, "message": reject.message}
    entry |= dict(zip(PATH_COLUMNS, reject.paths, strict=False))
    for name in ("key", "split", "file", "text"):
        if value := getattr(reject, name):
            entry[name] = value
    return keys.format_canonical(entry)


def describe_dataset(
    record: RecordSettings,
    settings: ShardSettings,
    shards: Sequence[ShardInfo],
    bad_rows: Sequence[Reject],
) -> dict[str, object]:
    """Returns the content of dataset.json: nothing that a second build would find otherwise."""
    rejected = Counter({"bad_row": len(bad_rows)} if bad_rows else {})
    for shard in shards:
        rejected.update(dict(shard.rejected))
    return {
        "format_version": FORMAT_VERSION,
        "kind": record.kind,
        "payload": record.payload,
        "features": _describe_features(record, shards),
        "classes": _describe_classes(record, shards),
        "splits": _describe_splits(shards),
        "rows": {
            "read": sum(shard.rows for shard in shards) + len(bad_rows),
            "written": sum(shard.records for shard in shards),
            "rejected": dict(sorted(rejected.items())),
            "digest": f"{_digest_rows(shards, bad_rows):032x}",
        },
        "settings": describe_settings(record, settings),
        "decoders": decoder_versions(),
    }


def describe_settings(record: RecordSettings, settings: ShardSettings) -> dict[str, object]:
    """Returns the settings that decide bytes, as dataset.json names them."""
    return {
        "classes": list(record.class_names) or record.num_classes,
        "ignore_id": record.ignore_id,
        "max_pixels": record.max_pixels,
        "inside_root": record.inside_root,
        "seed": settings.seed,
        "splits": format_splits(settings),
        "split_by": settings.split_by,
        "digest": record_digest(record, settings),
    }


def format_json(value: Mapping[str, object]) -> bytes:
    """Returns JSON for people and programs: indented, names in the given order, UTF-8."""
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def total_pixels(shards: Iterable[ShardInfo]) -> Counter[int]:
    """Returns the pixels of each class id over all masks."""
    pixels: Counter[int] = Counter()
    for shard in shards:
        pixels.update(dict(shard.pixel_counts))
    return pixels


def _describe_features(
    record: RecordSettings, shards: Sequence[ShardInfo]
) -> dict[str, dict[str, object]]:
    """Names, dtypes and shapes of what stands in a record.

    `array` is what a reader gets out of the bytes; a side is null where pictures differ in it.
    """
    height, width = _common(shards, "heights"), _common(shards, "widths")
    sizes: dict[str, object] = {"image": [height, width, 3], "mask": [height, width]}
    return {
        name: {"dtype": spec.dtype, "shape": [], "holds": spec.holds}
        | ({"array": {"dtype": "uint8", "shape": sizes[spec.array]}} if spec.array else {})
        for name, spec in FEATURES[record.payload].items()
    }


def _common(shards: Sequence[ShardInfo], side: str) -> int | None:
    values = {value for shard in shards if shard.records for value in getattr(shard, side)}
    return values.pop() if len(values) == 1 else None


def _describe_classes(
    record: RecordSettings, shards: Sequence[ShardInfo]
) -> dict[str, dict[str, object]]:
    pixels = total_pixels(shards)
    names = record.class_names
    classes: dict[str, dict[str, object]] = {}
    for value in sorted({*range(len(names)), *pixels}):
        classes[str(value)] = {"pixels": pixels[value]}
        if value < len(names):
            classes[str(value)]["name"] = names[value]
        if value == record.ignore_id:
            classes[str(value)]["ignored"] = True
    return classes


def _describe_splits(shards: Sequence[ShardInfo]) -> dict[str, dict[str, object]]:
    splits: dict[str, dict[str, object]] = {}
    for name in sorted({info.shard.split for info in shards}):
        own = sorted((i for i in shards if i.shard.split == name), key=lambda info: info.shard)
        splits[name] = {
            "records": sum(info.records for info in own),
            "bytes": sum(info.size_bytes for info in own),
            "shards": [
                {
                    "name": info.name,
                    "records": info.records,
                    "bytes": info.size_bytes,
                    "crc32c": f"{info.crc32c:08x}",
                }
                for info in own
            ],
        }
    return splits


def _digest_rows(shards: Sequence[ShardInfo], bad_rows: Sequence[Reject]) -> int:
    bad = [keys.row_digest(reject.code, reject.message, reject.text) for reject in bad_rows]
    return keys.add_digests([*(shard.rows_digest for shard in shards), *bad])
