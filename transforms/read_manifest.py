"""Manifest files to rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.metrics import Metrics

from transforms.core import files, keys, reports
from transforms.core.manifest_rows import ManifestOptions
from transforms.core.manifests import read_manifest
from transforms.core.progress import PROGRESS
from transforms.core.rows import Reject, Row, pack_row
from transforms.write_rejects import RejectBatch

BATCH_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class ManifestInfo:
    """The account of one manifest file.

    Attributes:
      path: absolute.
      sha256: of its bytes, in hex.
      rows: read, the bad ones too.
      bad_rows: lines that are no rows.
    """

    path: str
    sha256: str
    rows: int
    bad_rows: int


class ReadManifest(beam.PTransform):
    """Reads manifests: PCollection[str] (paths) to three outputs.

    `rows`: packed `Row`s (bytes); `rejects`: `RejectBatch` of the lines that are no rows;
    `manifests`: one `ManifestInfo` per file. One file is read by one worker, several in
    parallel: a range of a CSV can't know whether it begins inside quotes.
    """

    def __init__(self, options: ManifestOptions) -> None:
        super().__init__()
        self._options = options

    def expand(self, paths: beam.PCollection) -> beam.pvalue.DoOutputsTuple:
        return (
            paths
            | "Spread" >> beam.Reshuffle()
            | "Read"
            >> beam.ParDo(_Read(self._options)).with_outputs("rejects", "manifests", main="rows")
        )


class _Read(beam.DoFn):
    def __init__(self, options: ManifestOptions) -> None:
        self._options = options
        self._rows_read = Metrics.counter("pairshard", "rows_read")

    def process(self, path: str) -> Iterator[object]:
        PROGRESS.begin_read()
        rows = 0
        bad: list[Reject] = []
        batches = 0
        for item in read_manifest(path, self._options):
            rows += 1
            if rows % BATCH_ROWS == 0:
                PROGRESS.add(BATCH_ROWS)
            if isinstance(item, Row):
                yield pack_row(item)
                continue
            bad.append(item)
            if len(bad) % BATCH_ROWS == 0:
                yield _batch(path, batches, bad)
                batches, bad = batches + 1, []
        if bad:
            yield _batch(path, batches, bad)
        PROGRESS.add(rows % BATCH_ROWS)
        self._rows_read.inc(rows)
        info = ManifestInfo(path, files.sha256_of_file(path), rows, batches * BATCH_ROWS + len(bad))
        yield beam.pvalue.TaggedOutput("manifests", info)


def _batch(path: str, number: int, bad: list[Reject]) -> beam.pvalue.TaggedOutput:
    name = f"{reports.BAD_ROWS}{keys.digest_of(path)[:16]}-{number:06d}"
    return beam.pvalue.TaggedOutput("rejects", RejectBatch(name, reports.format_rejects(bad)))
