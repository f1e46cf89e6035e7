"""How many shards each split gets."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import apache_beam as beam

from transforms.core import keys, shards, sizing
from transforms.core.rows import unpack_row
from transforms.core.settings import RecordSettings, ShardSettings


class PlanShards(beam.PTransform):
    """Settles the number of shards: packed rows to PCollection[tuple[str, int]], one per split.

    Args:
      settings: splits, and their shards as the user gave them.
      record: what decides a record's size.
      source_root: where the sampled rows' headers are read.
    """

    def __init__(self, settings: ShardSettings, record: RecordSettings, source_root: str) -> None:
        super().__init__()
        self._settings = settings
        self._record = record
        self._source_root = source_root

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        by_split = rows | "BySplit" >> beam.Map(_with_split, self._settings)
        empty = [(name, (0, b"")) for name in self._settings.seeded]
        return (
            (by_split, rows.pipeline | "Seed" >> beam.Create(empty))
            | "Join" >> beam.Flatten()
            | "Sample" >> beam.CombinePerKey(_CountAndSample())
            | "Count" >> beam.Map(_count, self._settings, self._record, self._source_root)
        )


@dataclass(slots=True)
class _Sample:
    """Rows of a split: how many, and (-order, packed row) of the lowest, as a heap."""

    rows: int
    lowest: list[tuple[int, bytes]]


class _CountAndSample(beam.CombineFn):
    def create_accumulator(self) -> _Sample:
        return _Sample(0, [])

    def add_input(self, sample: _Sample, row: tuple[int, bytes]) -> _Sample:
        return self._add(sample, row, rows=1) if row[1] else sample

    def merge_accumulators(self, samples: Iterable[_Sample]) -> _Sample:
        merged = _Sample(0, [])
        for sample in samples:
            merged.rows += sample.rows
            for row in sample.lowest:
                self._add(merged, row, rows=0)
        return merged

    def extract_output(self, sample: _Sample) -> _Sample:
        return sample

    def _add(self, sample: _Sample, row: tuple[int, bytes], *, rows: int) -> _Sample:
        sample.rows += rows
        if len(sample.lowest) < shards.SAMPLED_ROWS:
            heapq.heappush(sample.lowest, row)
        elif row > sample.lowest[0]:
            heapq.heapreplace(sample.lowest, row)
        return sample


def _with_split(packed: bytes, settings: ShardSettings) -> tuple[str, tuple[int, bytes]]:
    row = unpack_row(packed)
    # Minus the order: heapq keeps the greatest, and the lowest in order are wanted.
    order = keys.order_of(row.key, seed=settings.seed)
    return sizing.split_of_row(row, settings), (-order, packed)


def _count(
    split: tuple[str, _Sample], settings: ShardSettings, record: RecordSettings, root: str
) -> tuple[str, int]:
    name, sample = split
    rows = [unpack_row(packed) for _, packed in sorted(sample.lowest)]
    return name, sizing.count_for_split(name, sample.rows, rows, settings, record, root)
