"""Shard tasks to TFRecord files: the pixels are read, decoded and written where the task is."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import apache_beam as beam
from apache_beam.metrics import Metrics

from transforms.core.child import Child
from transforms.core.memory import keep_freed_memory
from transforms.core.progress import PROGRESS
from transforms.core.reports import format_rejects
from transforms.core.shards import SHARD_NAME_TEMPLATE, SUFFIX, ShardTask, format_shard_name
from transforms.core.writing import ShardResult, WriteOptions, write_shard, write_shard_in_child
from transforms.write_rejects import RejectBatch


class WriteToTFRecord(beam.PTransform):
    """Writes one TFRecord file and its index per `ShardTask`.

    Unlike Beam's transform of this name it takes rows, not records: no pixel goes through a
    shuffle. The files' names and framing are the same, and Beam's and TensorFlow's readers
    read them. (Beam's num_shards is `AssignShards`'; its coder, compression and header have
    no meaning here.)

    Outputs: `shards`: PCollection[ShardInfo]; `rejects`: PCollection[RejectBatch]; `changed`:
    the ShardIds that `check_only` found in need of building.

    Args:
      options: what every shard has in common; `options.output` is Beam's file_path_prefix,
        the folder that the shards are written into.
      file_name_suffix: ends each file's name.
      shard_name_template: runs of S and N stand for a shard's number and their count.
      threads: that decode, in each worker.
      in_child: whether shards are written in a process of its own per worker, past the
        interpreter lock.
    """

    def __init__(
        self,
        options: WriteOptions,
        *,
        file_name_suffix: str = SUFFIX,
        shard_name_template: str = SHARD_NAME_TEMPLATE,
        threads: int = 1,
        in_child: bool = False,
    ) -> None:
        super().__init__()
        self._options = options
        self._naming = (shard_name_template, file_name_suffix)
        self._threads = threads
        self._in_child = in_child

    def expand(self, tasks: beam.PCollection) -> beam.pvalue.DoOutputsTuple:
        write = _Write(self._options, self._naming, self._threads, self._in_child)
        return tasks | "Write" >> beam.ParDo(write).with_outputs(
            "rejects", "changed", main="shards"
        )


class _Write(beam.DoFn):
    def __init__(
        self, options: WriteOptions, naming: tuple[str, str], threads: int, in_child: bool
    ) -> None:
        self._options = options
        self._naming = naming
        self._threads = threads
        self._in_child = in_child
        self._written = Metrics.counter("pairshard", "rows_written")
        self._rejected = Metrics.counter("pairshard", "rows_rejected")
        self._reused = Metrics.counter("pairshard", "shards_reused")

    def setup(self) -> None:
        keep_freed_memory()
        self._child = Child() if self._in_child else None
        self._executor = None
        if self._child is None and self._threads > 1:
            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="decode")

    def teardown(self) -> None:
        if self._child:
            self._child.close()
        if self._executor:
            self._executor.shutdown(cancel_futures=True)

    def process(self, task: ShardTask) -> Iterator[object]:
        PROGRESS.begin_write()
        template, suffix = self._naming
        name = format_shard_name(task.shard, template=template, suffix=suffix)
        result = self._write(task, name)
        if result.info is None:
            yield beam.pvalue.TaggedOutput("changed", task.shard)
            return
        self._written.inc(result.info.records)
        self._rejected.inc(len(result.rejects))
        if result.info.reused:
            self._reused.inc()
            PROGRESS.add(len(task.rows), len(result.rejects))
        yield result.info
        if result.rejects:
            lines = format_rejects(result.rejects)
            yield beam.pvalue.TaggedOutput("rejects", RejectBatch(name, lines))

    def _write(self, task: ShardTask, name: str) -> ShardResult:
        if self._child:
            return write_shard_in_child(
                self._child, task, name, self._options, threads=self._threads, on_row=_count
            )
        return write_shard(
            task,
            name,
            self._options,
            executor=self._executor,
            threads=self._threads,
            on_row=_count,
        )


def _count(rejected: bool) -> None:
    PROGRESS.add(1, int(rejected))
