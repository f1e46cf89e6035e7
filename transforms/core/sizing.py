"""How many shards a split gets, and which of them a row belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transforms.core import keys
from transforms.core.pairs import reckon_size
from transforms.core.rows import Row
from transforms.core.settings import RecordSettings, ShardSettings
from transforms.core.shards import ShardId, count_shards


def split_of_row(row: Row, settings: ShardSettings) -> str:
    """Returns a row's split: what the manifest says, else what its group or key decides."""
    return row.split or keys.split_of(row.group or row.key, settings.splits)


def shard_of_row(row: Row, settings: ShardSettings, num_shards: Mapping[str, int]) -> ShardId:
    """Returns the shard that a row belongs to, given each split's number of shards."""
    split = split_of_row(row, settings)
    order = keys.order_of(row.key, seed=settings.seed)
    count = num_shards[split]
    return ShardId(split, keys.shard_of(order, num_shards=count), count)


def place_of_row(row: Row, *, seed: int) -> tuple[object, ...]:
    """Returns what rows of a shard are sorted by: the order of the key.

    Rejected duplicates stand behind the row that was kept, in an order of their own content.
    """
    order = keys.order_of(row.key, seed=seed)
    return order, row.code == "duplicate_key", row.paths, row.others, row.manifest, row.line


def count_for_split(
    split: str,
    num_rows: int,
    lowest: Sequence[Row],
    settings: ShardSettings,
    record: RecordSettings,
    source_root: str,
) -> int:
    """Returns a split's number of shards: as given, else reckoned from its lowest rows.

    Args:
      split: its name.
      num_rows: it has.
      lowest: the rows that are sampled, the lowest in order.
      settings: what the user gave.
      record: what decides a record's size.
      source_root: where the headers are read.
    """
    given = dict(settings.num_shards)
    count = given.get(split, given.get(""))
    if count is not None:
        return count
    sizes = [reckon_size(source_root, row.paths, record) for row in lowest if not row.code]
    known = [size for size in sizes if size is not None]
    return count_shards(num_rows, known, shard_bytes=settings.shard_bytes)
