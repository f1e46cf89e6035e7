"""Rejects to part files, which the driver joins into rejects.jsonl."""

from __future__ import annotations

from dataclasses import dataclass

import apache_beam as beam

from transforms.core import reports


@dataclass(frozen=True, slots=True)
class RejectBatch:
    """Rejects that one worker found together.

    Attributes:
      part: names the batch in the same way however often it is written.
      lines: `reports.format_rejects` of them, in the order of the shard or of the manifest.
    """

    part: str
    lines: bytes


class WriteRejects(beam.PTransform):
    """Writes each batch to a file of its own: PCollection[RejectBatch] to none.

    No shuffle: a million rejects cost no memory. A batch that is run twice writes the same
    bytes to the same name.

    Args:
      folder: where the parts are kept until the driver joins them.
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self._folder = folder

    def expand(self, batches: beam.PCollection) -> beam.PCollection:
        return batches | "Write" >> beam.Map(_write, self._folder)


def _write(batch: RejectBatch, folder: str) -> None:
    reports.write_rejects(folder, batch.part, batch.lines)
