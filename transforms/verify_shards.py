"""Shards back into what they were made of: the companion stage."""

from __future__ import annotations

import heapq
import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from transforms.core import index, keys, verifying
from transforms.core.comparing import Comparer, CompareTask, Difference
from transforms.core.index import WRITTEN, IndexFileError, IndexRow
from transforms.core.progress import PROGRESS
from transforms.core.shards import IndexSums, index_name
from transforms.core.verifying import RANKS, Failure, ShardCheck, VerifyInfo

SHARDS_AHEAD = 2
"""So many shards' frames are read while another's records are being compared."""


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
      threads: that compare, in each worker's process for it.
    """

    folder: str
    source_root: str
    payload: str
    seed: int = 0
    sample: int | None = 10_000
    fraction: float = 1.0
    threads: int = 1


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


@dataclass(frozen=True, slots=True)
class _Begun:
    """A shard whose frames have been read, and whose records are being compared."""

    check: ShardCheck
    sample: int
    failures: Sequence[Failure]
    sums: IndexSums | None
    comparison: Future[list[Difference]] | None

    def finish(self) -> VerifyInfo:
        differences = self.comparison.result() if self.comparison else []
        name = self.check.name
        failures = sorted([*self.failures, *(_failure(name, d) for d in differences)])
        compared = self.sample - sum(d.source_changed for d in differences)
        return VerifyInfo(name, self.check.records, compared, tuple(failures), self.sums)


class _Verify(beam.DoFn):
    def __init__(self, options: VerifyOptions) -> None:
        self._options = options
        self._comparer: Comparer | None = None
        self._begun: deque[_Begun] = deque()
        self._compared = Metrics.counter("pairshard", "records_compared")

    def start_bundle(self) -> None:
        self._begun.clear()  # what a bundle left that failed

    def process(self, check: ShardCheck, threshold: int) -> Iterator[VerifyInfo]:
        self._begun.append(self._begin(check, threshold if check.sampled else 0))
        while len(self._begun) > SHARDS_AHEAD:
            yield self._finish()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        while self._begun:
            yield GlobalWindows.windowed_value(self._finish())

    def teardown(self) -> None:
        if self._comparer:
            self._comparer.close()
            self._comparer = None

    def _begin(self, check: ShardCheck, threshold: int) -> _Begun:
        options = self._options
        if threshold and check.records and not self._comparer:
            self._comparer = Comparer(options.payload)  # it gets ready while frames are read

        def is_sampled(key: str) -> bool:
            return verifying.is_sampled(key, seed=options.seed, threshold=threshold)

        def count(key: str) -> None:
            PROGRESS.add(0 if key and is_sampled(key) else 1)  # the others when they are compared

        found = verifying.check_shard(options.folder, check, count)
        sample = [row for row in found.good if is_sampled(row.key)]
        comparison = self._compare(check, sample)
        return _Begun(check, len(sample), found.failures, found.sums, comparison)

    def _compare(self, check: ShardCheck, rows: list[IndexRow]) -> Future[list[Difference]] | None:
        if not rows or not self._comparer:
            return None
        options = self._options
        path = os.path.join(options.folder, check.name)
        task = CompareTask(path, options.payload, options.source_root, rows, options.threads)
        return self._comparer.submit(task, PROGRESS.add)

    def _finish(self) -> VerifyInfo:
        info = self._begun.popleft().finish()
        self._compared.inc(info.compared)
        return info


def _failure(shard: str, difference: Difference) -> Failure:
    row = difference.row
    return Failure(shard, row.offset, row.key, difference.what, difference.source_changed)
