"""Which of the rows that share a key is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from transforms.core.rows import Row


def mark_duplicates(rows: Iterable[Row]) -> Iterator[Row]:
    """Yields all rows, by key; of those that share one, all but the lowest as rejected.

    The lowest by what it says (files, split, other columns), so that the order of the manifest
    doesn't matter; a row that was rejected already comes after those that were not. The
    duplicates take the kept row's split and group: they stand beside it in the index.
    """
    for _, same in groupby(sorted(rows, key=_rank), key=lambda row: row.key):
        kept, *others = same
        yield kept
        for row in others:
            yield replace(
                row,
                split=kept.split,
                group=kept.group,
                code="duplicate_key",
                message=_explain(row, kept),
            )


def _rank(row: Row) -> tuple[object, ...]:
    return row.key, row.code != "", row.paths, row.split, row.others, row.manifest, row.line


def _explain(row: Row, kept: Row) -> str:
    if row.paths == kept.paths:
        found = "another row with the same key and the same files"
    else:
        found = f"another row with the same key, {', '.join(kept.paths)},"
    return (
        f"{row.key}: {found} was kept; keys name one row each. Remove one, "
        "or tell them apart in a 'key' column"
    )
