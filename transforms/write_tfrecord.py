"""Shard tasks to TFRecord files: the pixels are read, decoded and written where the task is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from transforms.core.child import ChildPool
from transforms.core.memory import keep_freed_memory, spare_collector
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
      processes: that write shards side by side, past the interpreter lock; 1: this process
        writes them one by one.
      threads: that decode, in each of them; 0: as many as there would be processes without a
        shard.
    """

    def __init__(
        self,
        options: WriteOptions,
        *,
        file_name_suffix: str = SUFFIX,
        shard_name_template: str = SHARD_NAME_TEMPLATE,
        processes: int = 1,
        threads: int = 1,
    ) -> None:
        super().__init__()
        self._options = options
        self._naming = (shard_name_template, file_name_suffix)
        self._processes = processes
        self._threads = threads

    def expand(self, tasks: beam.PCollection) -> beam.pvalue.DoOutputsTuple:
        write = _Write(self._options, self._naming, self._processes, self._threads)
        return tasks | "Write" >> beam.ParDo(write).with_outputs(
            "rejects", "changed", main="shards"
        )


class _Write(beam.DoFn):
    """Hands each task to a process that is free, or works on it itself where there is but one."""

    def __init__(
        self, options: WriteOptions, naming: tuple[str, str], processes: int, threads: int
    ) -> None:
        self._options = options
        self._naming = naming
        self._processes = processes
        self._threads = threads
        self._written = Metrics.counter("pairshard", "rows_written")
        self._rejected = Metrics.counter("pairshard", "rows_rejected")
        self._reused = Metrics.counter("pairshard", "shards_reused")

    def setup(self) -> None:
        keep_freed_memory()
        spare_collector()
        self._children = ChildPool(self._processes) if self._processes > 1 else None
        workers = self._processes if self._children else max(1, self._threads)
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="write")

    def teardown(self) -> None:
        if self._children:
            self._children.close()
        self._executor.shutdown(cancel_futures=True)

    def start_bundle(self) -> None:
        self._waiting: deque[Future[ShardResult]] = deque()

    def process(self, task: ShardTask) -> Iterator[object]:
        PROGRESS.begin_write()
        template, suffix = self._naming
        name = format_shard_name(task.shard, template=template, suffix=suffix)
        if self._children is None:
            yield from self._outputs(self._write_here(task, name))
            return
        self._waiting.append(self._executor.submit(self._write_in_child, task, name))
        if len(self._waiting) > 2 * self._processes:
            yield from self._outputs(self._waiting.popleft().result())

    def finish_bundle(self) -> Iterator[object]:
        while self._waiting:
            for output in self._outputs(self._waiting.popleft().result()):
                if isinstance(output, beam.pvalue.TaggedOutput):
                    yield beam.pvalue.TaggedOutput(output.tag, _in_global_window(output.value))
                else:
                    yield _in_global_window(output)

    def _outputs(self, result: ShardResult) -> Iterator[object]:
        if result.info is None:
            yield beam.pvalue.TaggedOutput("changed", result.shard)
            return
        self._written.inc(result.info.records)
        self._rejected.inc(len(result.rejects))
        if result.info.reused:
            self._reused.inc()
            PROGRESS.add(result.info.rows, len(result.rejects))
        yield result.info
        if result.rejects:
            lines = format_rejects(result.rejects)
            yield beam.pvalue.TaggedOutput("rejects", RejectBatch(result.info.name, lines))

    def _write_here(self, task: ShardTask, name: str) -> ShardResult:
        threads = max(1, self._threads)
        executor = self._executor if threads > 1 else None
        return write_shard(
            task, name, self._options, executor=executor, threads=threads, on_row=_count
        )

    def _write_in_child(self, task: ShardTask, name: str) -> ShardResult:
        # With fewer shards than processes, the cores that are left decode for them.
        threads = self._threads or max(1, self._processes // task.shard.num_shards)
        assert self._children is not None
        with self._children.borrow() as child:
            return write_shard_in_child(
                child, task, name, self._options, threads=threads, on_row=_count
            )


def _count(rejected: bool) -> None:
    PROGRESS.add(1, int(rejected))


def _in_global_window(value: object) -> WindowedValue:
    return WindowedValue(value, MIN_TIMESTAMP, [GlobalWindow()])
