"""Tables and sizes for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def format_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns a table as lines: the first column to the left, the others to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(head, *rows, strict=True)]
    return ["  ".join(_cells(row, widths)).rstrip() for row in (head, *rows)]


def format_bytes(size: float) -> str:
    """Returns a size for people: '1.4 GiB'."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def _cells(row: Sequence[str], widths: Sequence[int]) -> Iterable[str]:
    first, *others = zip(row, widths, strict=True)
    return [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
