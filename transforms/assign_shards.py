"""Rows to shards: what a worker gets is one shard with all its rows in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import apache_beam as beam

from transforms.core import sizing
from transforms.core.rows import unpack_row
from transforms.core.settings import ShardSettings
from transforms.core.shards import ShardId, ShardTask


class AssignShards(beam.PTransform):
    """Groups packed rows by shard: to PCollection[ShardTask], one for every shard.

    GroupByKey yields nothing for an empty shard, so each is seeded.

    Args:
      settings: splits and seed.
      plan: PCollection[tuple[str, int]] of splits and their numbers of shards.
    """

    def __init__(self, settings: ShardSettings, plan: beam.PCollection) -> None:
        super().__init__()
        self._settings = settings
        self._plan = plan

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        plan = beam.pvalue.AsDict(self._plan)
        seeds = self._plan | "Seed" >> beam.FlatMap(_seed)
        assigned = rows | "Assign" >> beam.Map(_assign, self._settings, plan)
        return (
            (assigned, seeds)
            | "Join" >> beam.Flatten()
            | "Group" >> beam.GroupByKey()
            | "Order" >> beam.Map(_order, self._settings.seed)
        )


_Key = tuple[str, int, int]


def _seed(split: tuple[str, int]) -> Iterator[tuple[_Key, bytes]]:
    name, count = split
    for number in range(count):
        yield (name, number, count), b""


def _assign(packed: bytes, settings: ShardSettings, plan: Mapping[str, int]) -> tuple[_Key, bytes]:
    shard = sizing.shard_of_row(unpack_row(packed), settings, plan)
    return (shard.split, shard.index, shard.num_shards), packed


def _order(group: tuple[_Key, Iterable[bytes]], seed: int) -> ShardTask:
    key, packed = group
    rows = [unpack_row(row) for row in packed if row]
    rows.sort(key=lambda row: sizing.place_of_row(row, seed=seed))
    return ShardTask(ShardId(*key), tuple(rows))
