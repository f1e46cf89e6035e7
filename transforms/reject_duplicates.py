"""Of the rows that share a key, one is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam

from transforms.core import duplicates, keys
from transforms.core.rows import pack_row, unpack_row

BUCKET_BITS = 16
"""Rows are grouped by this many leading bits of their order, not by key.

A group per key would be a million groups of one; a bucket of a billion rows has 15,000.
"""


class RejectDuplicates(beam.PTransform):
    """Marks all rows of a key but the lowest: packed rows to packed rows, none left out.

    This comes before splits are made, so that a key can't stand in two of them.
    """

    def expand(self, rows: beam.PCollection) -> beam.PCollection:
        return (
            rows
            | "ByBucket" >> beam.Map(_with_bucket)
            | "Group" >> beam.GroupByKey()
            | "Mark" >> beam.FlatMap(_mark)
        )


def _with_bucket(packed: bytes) -> tuple[int, bytes]:
    order = keys.order_of(unpack_row(packed).key, seed=0)
    return order >> (keys.ORDER_BITS - BUCKET_BITS), packed


def _mark(bucket: tuple[int, Iterable[bytes]]) -> Iterator[bytes]:
    for row in duplicates.mark_duplicates(map(unpack_row, bucket[1])):
        yield pack_row(row)
