"""Which shards there are, what they are called, and what is known of one that is finished."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from transforms.core.errors import ConfigError
from transforms.core.rows import Row

SHARD_NAME_TEMPLATE = "-SSSSS-of-NNNNN"
"""Beam's default: how a shard's number and their count stand in its name."""

SUFFIX = ".tfrecord"
INDEX_DIR = "index"
INDEX_SUFFIX = ".parquet"
BUILDING_SUFFIX = ".building"
"""Ends the name of an empty file that says that a shard is being written, and is ours."""

MAX_ROWS_PER_SHARD = 200_000
SAMPLED_ROWS = 256
"""The mean size of a record is reckoned from this many rows of a split, the lowest in order."""

_NAME = re.compile(r"([^/]+)-(\d{5})-of-(\d{5})\.tfrecord")


@dataclass(frozen=True, slots=True, order=True)
class ShardId:
    """One shard of a split.

    Attributes:
      split: its name.
      index: in [0, num_shards).
      num_shards: of the split.
    """

    split: str
    index: int
    num_shards: int


@dataclass(frozen=True, slots=True)
class ShardTask:
    """All that one shard is made of.

    Attributes:
      rows: in order; rows that are rejected already stand among them.
    """

    shard: ShardId
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class ShardInfo:
    """A finished shard; its index keeps this, but for `reused`, in its metadata.

    Attributes:
      name: of the shard's file.
      records: written.
      size_bytes: of the file.
      crc32c: of the file.
      rows: of the manifest that belong to it: records plus rejected.
      rejected: (code, number) sorted by code.
      pixel_counts: (class id, pixels) over all its masks, sorted by id.
      heights, widths: the least and the greatest; (0, 0) where there is no record.
      digest: of the settings and of the rows in their order: equal digests and equal sources
        make equal bytes.
      rows_digest: the order-free digest of its rows.
      reused: the shard was there already and was kept.
    """

    shard: ShardId
    name: str
    records: int
    size_bytes: int
    crc32c: int
    rows: int
    rejected: tuple[tuple[str, int], ...]
    pixel_counts: tuple[tuple[int, int], ...]
    heights: tuple[int, int]
    widths: tuple[int, int]
    digest: str
    rows_digest: int
    reused: bool = False


@dataclass(frozen=True, slots=True)
class IndexSums:
    """What the rows of indexes add up to.

    Attributes:
      rejected: (code, number) sorted by code.
      pixel_counts: (class id, pixels) over all masks, sorted by id.
    """

    rejected: tuple[tuple[str, int], ...]
    pixel_counts: tuple[tuple[int, int], ...]


def format_shard_name(
    shard: ShardId, *, template: str = SHARD_NAME_TEMPLATE, suffix: str = SUFFIX
) -> str:
    """Returns a shard's file name, as Beam's sinks make it: train-00003-of-00008.tfrecord."""
    number = _fill(_fill(template, "S", shard.index), "N", shard.num_shards)
    return shard.split + number + suffix


def parse_shard_name(name: str) -> ShardId | None:
    """Returns the shard that a file name of ours names, or None for any other name."""
    match = _NAME.fullmatch(name)
    return ShardId(match[1], int(match[2]), int(match[3])) if match else None


def index_name(shard_name: str) -> str:
    """Returns the name, below the data set's folder, of a shard's index."""
    return f"{INDEX_DIR}/{shard_name.removesuffix(SUFFIX)}{INDEX_SUFFIX}"


def building_name(shard_name: str) -> str:
    """Returns the name, below the data set's folder, of the note that a shard is being written."""
    return f"{INDEX_DIR}/{shard_name.removesuffix(SUFFIX)}{BUILDING_SUFFIX}"


def count_shards(num_rows: int, sizes_bytes: Sequence[int], *, shard_bytes: int) -> int:
    """Returns the smallest power of two of shards that keeps the mean shard small enough.

    A power of two, so that growth leaves the shards alone until it doubles their number.

    Args:
      num_rows: of the split.
      sizes_bytes: of the sampled records; [] where none could be read.
      shard_bytes: the most that a shard may have in the mean.
    """
    if not num_rows:
        return 1
    mean = sum(sizes_bytes) / len(sizes_bytes) if sizes_bytes else 0.0
    count = 1
    while num_rows * mean > count * shard_bytes or num_rows > count * MAX_ROWS_PER_SHARD:
        count *= 2
    if count > 99_999:
        raise ConfigError(
            f"{num_rows} rows in shards of {shard_bytes} bytes would be {count} shards; "
            "their names have five digits. Give a larger --shard-size"
        )
    return count


def _fill(template: str, letter: str, value: int) -> str:
    return re.sub(f"{letter}+", lambda run: f"{value:0{len(run[0])}d}", template)
