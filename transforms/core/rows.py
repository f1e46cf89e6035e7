"""A row of a manifest, and a row that was rejected: all that travels before the shards."""

from __future__ import annotations

import pickle
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """One row of a manifest that has a key.

    Rows compare by what they say, then by where they stood: the lowest row of a key is kept.

    Attributes:
      key: names the row for ever; decides its split, its shard and its place there.
      paths: the source files, in the order of the kind's columns, relative to the source
        root, with '/' and without '.' (absolute only with `--allow-outside-root`).
      split: the manifest's `split` column; '' where the key's hash decides.
      others: the further columns as JSON with sorted names; '' where there are none.
      group: the value of the `--split-by` column; '' where the key decides.
      code, message: set where the row was rejected before its files were opened.
      manifest, line: where the row stood (a line counts from 1, the header included).
    """

    key: str
    paths: tuple[str, ...]
    split: str = ""
    others: str = ""
    group: str = ""
    code: str = ""
    message: str = ""
    manifest: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Reject:
    """A row that did not become a record.

    Attributes:
      key: the row's key; '' for a line that is no row (bad_row).
      paths: as in `Row`; () for a bad_row.
      split: the split that it would have been in; '' for a bad_row.
      code: one of `errors.REJECT_CODES`.
      message: which file, what was found, what was expected, what to do.
      file: the path of the file at fault, '' where it is the row itself.
      text: the line's own text where it is no row, cut to 1,000 characters.
      manifest, line: where the row stood. They reach run.json and the printed report
        alone: the same rows in another order give the same rejects.jsonl.
    """

    key: str
    paths: tuple[str, ...]
    split: str
    code: str
    message: str
    file: str = ""
    text: str = ""
    manifest: str = ""
    line: int = 0


def pack_row(row: Row) -> bytes:
    """Returns a row as bytes: what a shuffle carries, some 200 bytes whatever the pictures."""
    fields = (row.key, row.paths, row.split, row.others, row.group)
    return pickle.dumps((*fields, row.code, row.message, row.manifest, row.line), protocol=5)


def unpack_row(data: bytes) -> Row:
    """Returns the row that `pack_row` packed, in this job or another worker of it."""
    return Row(*pickle.loads(data))
