"""Shards back into what they were made of: the companion stage."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.metrics import Metrics

from transforms.core import index, keys, verifying
from transforms.core.child import Child
from transforms.core.comparing import CompareTask, Difference, compare_records
from transforms.core.index import WRITTEN, IndexFileError, IndexRow
from transforms.core.progress import PROGRESS
from transforms.core.shards import index_name
from transforms.core.verifying import RANKS, Failure, ShardCheck, VerifyInfo

ROWS_PER_CALL = 64


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """What all shards are verified with.

    Attributes:
      folder: of the data set.
      source_root: where the sources are now.
      payload: 'raw' or 'encoded'.
      seed: of the sample.
      sample: at most this many records, the lowest in rank, are compared; None: `fraction`.
      fraction: of the records that is compared, in [0, 1].
    """

    folder: str
    source_root: str
    payload: str
    seed: int = 0
    sample: int | None = 10_000
    fraction: float = 1.0


class VerifyShards(beam.PTransform):
    """Verifies shards: PCollection[ShardCheck] to PCollection[VerifyInfo], one for each.

    Every frame of every shard is read; the sampled records are compared with their sources.
    """

    def __init__(self, options: VerifyOptions) -> None:
        super().__init__()
        self._options = options

    def expand(self, checks: beam.PCollection) -> beam.PCollection:
        threshold = checks.pipeline | "All" >> beam.Create([int(self._options.fraction * RANKS)])
        if self._options.sample is not None:
            threshold = (
                checks
                | "Rank" >> beam.Map(_lowest_ranks, self._options)
                | "Choose" >> beam.CombineGlobally(_Lowest(self._options.sample))
            )
        return (
            checks
            | "Spread" >> beam.Reshuffle()
            | "Verify" >> beam.ParDo(_Verify(self._options), beam.pvalue.AsSingleton(threshold))
        )


class _Lowest(beam.CombineFn):
    """The rank below which exactly `number` records lie; all of them where there are no more."""

    def __init__(self, number: int) -> None:
        self._number = number

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, ranks: list[int], more: list[int]) -> list[int]:
        return heapq.nsmallest(self._number + 1, [*ranks, *more])

    def merge_accumulators(self, several: Iterable[list[int]]) -> list[int]:
        return heapq.nsmallest(self._number + 1, [rank for ranks in several for rank in ranks])

    def extract_output(self, ranks: list[int]) -> int:
        return ranks[self._number] if len(ranks) > self._number else RANKS


def _lowest_ranks(check: ShardCheck, options: VerifyOptions) -> list[int]:
    if not check.sampled:
        return []
    path = os.path.join(options.folder, index_name(check.name))
    try:
        table = index.read_table(path, ["key", "status"])
    except (FileNotFoundError, IndexFileError):
        return []  # `check_shard` reports it
    keys_and_status = zip(table["key"].to_pylist(), table["status"].to_pylist(), strict=True)
    ranks = (
        keys.verify_rank(key, seed=options.seed)
        for key, status in keys_and_status
        if status == WRITTEN
    )
    return heapq.nsmallest((options.sample or 0) + 1, ranks)


class _Verify(beam.DoFn):
    def __init__(self, options: VerifyOptions) -> None:
        self._options = options
        self._child: Child | None = None
        self._compared = Metrics.counter("pairshard", "records_compared")

    def teardown(self) -> None:
        if self._child:
            self._child.close()
            self._child = None

    def process(self, check: ShardCheck, threshold: int) -> Iterator[VerifyInfo]:
        rows, failures = verifying.check_shard(self._options.folder, check, _count)
        sample: list[IndexRow] = []
        if check.sampled:
            sample = verifying.sample_rows(rows, seed=self._options.seed, threshold=threshold)
        failures += self._compare(check, sample)
        self._compared.inc(len(sample))
        yield VerifyInfo(check.name, check.records, len(sample), tuple(sorted(failures)))

    def _compare(self, check: ShardCheck, rows: list[IndexRow]) -> Iterator[Failure]:
        options = self._options
        path = os.path.join(options.folder, check.name)
        for start in range(0, len(rows), ROWS_PER_CALL):
            part = tuple(rows[start : start + ROWS_PER_CALL])
            task = CompareTask(path, options.payload, options.source_root, part)
            self._child = self._child or Child()
            found = self._child.call(compare_records, task)
            assert isinstance(found, list)
            for difference in found:
                yield _failure(check.name, difference)


def _failure(shard: str, difference: Difference) -> Failure:
    row = difference.row
    return Failure(shard, row.offset, row.key, difference.what, difference.source_changed)


def _count() -> None:
    PROGRESS.add(1)
