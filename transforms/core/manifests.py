"""Manifests: files that name the files of a row. Read as `Row`s, written as CSV.

Three forms: CSV with a header, JSON lines with the same names (RFC 8259, one object a
line), and plain lists of paths between blanks (VOC, CamVid, Caffe). A line that is no row
becomes a `Reject` and the reading goes on; what makes the whole file unusable (no header, a
cut .gz) is a `ConfigError`. Messages of rejects hold nothing that depends on neighbours, on
the version of Python or on the machine: the same rows in another order give the same ones.
"""

from __future__ import annotations

import csv
import glob
import gzip
import io
import os
import posixpath
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from typing import BinaryIO, cast

from transforms.core.errors import ConfigError, DataError, PlaceError
from transforms.core.manifest_rows import (
    SURROGATE,
    Columns,
    Fields,
    ManifestOptions,
    RowMaker,
    check_text,
    decode_object,
    find_columns,
    parse_cells,
    parse_list,
    parse_object,
    quote_names,
    refuse,
    show_text,
)
from transforms.core.rows import Reject, Row

_FORMAT_OF_ENDING = {
    ".csv": "csv",
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".txt", ".lst", ".list"), "list"),
}
FORMATS = ("auto", "csv", "jsonl", "list")
_FIRST_LINE_CHARS = 1 << 20
_TEXT_CHARS = 1000
_BLANKS = re.compile("[ \r\v\f]+")  # str.split() would also split at U+00A0 and U+3000
_QUOTED = re.compile(r'[",\r\n]|\A[ \t]|[ \t]\Z').search
_BAD_QUOTES = (
    "the line is not CSV: a cell's quote is not closed, more than a comma follows a closing "
    "quote, a carriage return stands outside quotes, or a cell is longer than 131,072 "
    "characters; put such a cell in quotes and double the quotes inside it"
)


# Line number of the record's first line, its text, its cells (None: broken quotes).
_Record = tuple[int, str, "list[str] | None"]


def find_manifests(patterns: Sequence[str]) -> list[str]:
    """Resolves file names and globs (also `**`) to absolute paths, sorted, each once.

    Raises:
      ConfigError: a pattern finds no file, or is a folder.
    """
    if not patterns:
        raise ConfigError("no manifest was given")
    found = {os.path.abspath(path) for pattern in patterns for path in _match(pattern)}
    for path in found:
        if SURROGATE.search(path):
            raise ConfigError(f"{path!r}: a manifest's name must be UTF-8; rename the file")
    return sorted(found)


def _match(pattern: str) -> list[str]:
    if os.path.isfile(pattern):  # before globbing: names may hold brackets
        return [pattern]
    if os.path.isdir(pattern):
        raise ConfigError(f"{pattern}: is a folder; name its manifests, as in '{pattern}/*.csv'")
    # A pipe can be read only once, and a manifest is read at least twice.
    found = [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]
    if not found:
        state = "is not an ordinary file" if os.path.exists(pattern) else "no such manifest"
        raise ConfigError(f"{pattern}: {state}; give a file or a glob that finds files")
    return found


def find_source_root(manifests: Sequence[str], source_root: str | None) -> str:
    """Returns the absolute folder of relative paths: as given, else the manifests' own.

    Raises:
      ConfigError: it is no folder or its name is not UTF-8, or it was not given and the
        manifests lie in several.
    """
    if source_root is not None:
        root = os.path.abspath(source_root)
        if not os.path.isdir(root):
            raise ConfigError(f"--source-root {source_root}: there is no such folder")
        if SURROGATE.search(root):  # run.json and the reports name it
            raise ConfigError(f"--source-root {root!r}: its name must be UTF-8; rename the folder")
        return root
    folders = sorted({os.path.dirname(os.path.abspath(path)) for path in manifests})
    if len(folders) != 1:
        # Taken from each manifest's folder, keys would depend on where manifests lie.
        shown = ", ".join(folders[:3]) + (", …" if len(folders) > 3 else "")
        raise ConfigError(
            f"the manifests lie in {len(folders)} folders ({shown}); "
            "say with --source-root where their paths begin"
        )
    return folders[0]


def find_format(path: str, options: ManifestOptions) -> str:
    """Returns "csv", "jsonl" or "list".

    Raises:
      ConfigError: the ending says nothing, or the format is unknown.
    """
    if options.format not in FORMATS:
        raise ConfigError(f"--manifest-format {options.format}: expected {', '.join(FORMATS)}")
    if options.format != "auto":
        return options.format
    ending = posixpath.splitext(path.lower().removesuffix(".gz"))[1]
    if ending not in _FORMAT_OF_ENDING:
        raise ConfigError(
            f"{path}: the ending {ending!r} names no format of a manifest (known: "
            f"{' '.join(_FORMAT_OF_ENDING)}); say it with --manifest-format csv, jsonl or list"
        )
    return _FORMAT_OF_ENDING[ending]


def check_manifest(path: str, options: ManifestOptions) -> None:
    """Checks what is wrong with a manifest as a whole, from its first lines alone.

    Raises:
      ConfigError: format, header or first lines are not a manifest's.
      PlaceError: the file can't be read.
    """
    kind = find_format(path, options)
    with _open_lines(path) as file:
        first = file.readline(_FIRST_LINE_CHARS)
        _check_first_line(first, path, kind)
        lines = chain([first] if first else [], file)
        if kind == "jsonl":
            _check_objects(islice(lines, 100), path, options)
        else:
            _start(lines, kind, path, options)


def _check_first_line(first: str, path: str, kind: str) -> None:
    if first.startswith("\x1f\udc8b"):
        raise ConfigError(f"{path}: is compressed with gzip; let its name end in .gz")
    if len(first) >= _FIRST_LINE_CHARS:
        raise ConfigError(f"{path}: its first line is longer than 1 MiB; is it a manifest?")
    if "\r" in first.rstrip("\r\n") and (kind != "csv" or '"' not in first):
        raise ConfigError(f"{path}: its lines end in CR alone; write it with LF or CRLF")


def _check_objects(lines: Iterable[str], path: str, options: ManifestOptions) -> None:
    # Not the first line alone: one bad line is a reject, wherever it stands.
    needed = [*options.path_columns, *([options.split_by] if options.split_by else [])]
    first = ""
    for line in lines:
        with suppress(DataError):
            if set(needed) <= set(decode_object(line)):
                return
        first = first or show_text(line)[:80].strip()
    if first:
        raise ConfigError(
            f"{path}: none of its first lines is a JSON object with {quote_names(needed)}, "
            f"one object a line (jq -c '.[]' makes that from an array); it begins with {first}"
        )


def read_manifest(path: str, options: ManifestOptions) -> Iterator[Row | Reject]:
    """Reads a manifest as a stream, in its order.

    Raises:
      ConfigError: the file is not there, has no usable header, or is a damaged .gz.
      PlaceError: the file can't be read (on).
    """
    kind = find_format(path, options)
    make = RowMaker(path, options).make_row
    with _open_lines(path) as lines:
        records, parse = _start(lines, kind, path, options)
        for line, text, cells in records:
            row: Row | Reject
            try:
                if not text.isascii() or "\0" in text:
                    check_text(text)
                if cells is None:
                    refuse(_BAD_QUOTES)
                row = make(parse(cells), line)
            except DataError as error:
                shown = show_text(text)[:_TEXT_CHARS]
                row = Reject("", (), "", error.code, error.message, "", shown, path, line)
            yield row


def format_manifest(rows: Iterable[Sequence[str]], columns: Sequence[str]) -> Iterator[str]:
    """Yields the lines of a CSV manifest, header first, each with its LF.

    Cells are quoted by our own rule: csv.writer's differs between versions of Python (before
    3.13 it leaves a carriage return bare).
    """
    for row in chain([columns], rows):
        cells = ['"' + cell.replace('"', '""') + '"' if _QUOTED(cell) else cell for cell in row]
        yield (",".join(cells) or '""') + "\n"


@contextmanager
def _open_lines(path: str) -> Iterator[io.TextIOWrapper]:
    # Lines end at LF alone, untranslated: CR, U+2028 and the like may stand in a name. What
    # is not UTF-8 becomes lone surrogates, so that it costs its own line and no other.
    try:
        with open(path, "rb") as file:
            packed = path.lower().endswith(".gz")
            if packed and not file.peek(1):
                raise EOFError  # gzip reads no bytes as no lines: rows would vanish
            # GzipFile is one in all but typeshed's name for it.
            stream = cast(BinaryIO, gzip.GzipFile(fileobj=file)) if packed else file
            yield io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="\n")
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such manifest") from None
    except EOFError:
        raise ConfigError(f"{path}: the .gz ends too early; write it again") from None
    except (gzip.BadGzipFile, zlib.error):
        raise ConfigError(f"{path}: is not gzip, or is damaged; write it again") from None
    except OSError as error:
        raise PlaceError(f"{path}: can't be read: {error.strerror or error}") from error


def _start(
    lines: Iterator[str], kind: str, path: str, options: ManifestOptions
) -> tuple[Iterator[_Record], Callable[[list[str]], Fields]]:
    """Reads past the header; returns the records and what makes fields of their cells."""
    if kind == "csv":
        records = _split_csv(lines)
        return records, partial(parse_cells, _read_header(records, path, options))
    if kind == "list":
        columns = find_columns(list(options.path_columns), f"{path}: a plain list", options)
        return _split_list(lines), partial(parse_list, columns)
    return _split_lines(lines), partial(parse_object, options)


def _split_lines(lines: Iterator[str]) -> Iterator[_Record]:
    for number, text in enumerate(lines, 1):
        if text.strip(" \t\r\n"):
            yield number, text, [text]


def _split_list(lines: Iterator[str]) -> Iterator[_Record]:
    for number, text, _ in _split_lines(lines):
        if text[0] != "#":
            line = text.rstrip("\r\n")
            tabs = "\t" in line
            yield number, text, line.split("\t") if tabs else _BLANKS.split(line.strip(" \r\v\f"))


def _split_csv(lines: Iterator[str]) -> Iterator[_Record]:
    """Splits CSV (RFC 4180) into records.

    A line whose quotes are broken is given out alone and the next is read afresh: a quote
    that nobody closed costs one row, not those up to the next quote. csv's limit of 131,072
    characters for a cell bounds what is kept for that.
    """
    taken: list[str] = []
    again: deque[str] = deque()

    def feed() -> Iterator[str]:
        while line := again.popleft() if again else next(lines, ""):
            taken.append(line)
            yield line.replace("\0", "\udc00")  # csv of Python 3.10 refuses NUL, later ones don't

    reader, number = csv.reader(feed(), strict=True), 1
    while True:
        taken.clear()
        cells: list[str] | None
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            cells = None
            again.extendleft(reversed(taken[1:]))
            del taken[1:]
            reader = csv.reader(feed(), strict=True)
        text = taken[0] if len(taken) == 1 else "".join(taken)
        if text.strip(" \t\r\n"):
            yield number, text, cells
        number += len(taken)


def _read_header(records: Iterator[_Record], path: str, options: ManifestOptions) -> Columns:
    _, text, names = next(records, (0, "", None))
    if not text:
        raise ConfigError(f"{path}: is empty; a CSV begins with a line that names its columns")
    if SURROGATE.search(text) or "\0" in text:
        raise ConfigError(f"{path}: the header is not UTF-8 text; write the file as UTF-8")
    if names is None:
        raise ConfigError(f"{path}: the header: {_BAD_QUOTES}")
    if "" in names:
        raise ConfigError(
            f"{path}: column {names.index('') + 1} of the header has no name; name it or leave "
            "it out (pandas: to_csv(index=False))"
        )
    return find_columns(names, f"{path}: the header", options)
