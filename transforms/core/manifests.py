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
import json
import os
import posixpath
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import BinaryIO, NamedTuple, NoReturn, cast

from transforms.core.errors import ConfigError, DataError, PlaceError
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
_SURROGATE = re.compile("[\ud800-\udfff]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_QUOTED = re.compile(r'[",\r\n]|\A[ \t]|[ \t]\Z').search
# A split is the first part of a shard's name: SPLIT-00000-of-00008.tfrecord.
_SPLIT_NAME = re.compile(r"(?!.*-[0-9]+-of-)[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_BAD_QUOTES = (
    "the line is not CSV: a cell's quote is not closed, more than a comma follows a closing "
    "quote, a carriage return stands outside quotes, or a cell is longer than 131,072 "
    "characters; put such a cell in quotes and double the quotes inside it"
)


@dataclass(frozen=True, slots=True)
class ManifestOptions:
    """How manifests are read.

    Attributes:
      source_root: the absolute folder (or object-store prefix) that relative paths start from.
      path_columns: the required columns, whose values are files, in `Row.paths`' order.
      format: one of `FORMATS`; "auto" goes by the file's ending.
      replace_prefix: (OLD, NEW) pairs; the first OLD that a path begins with becomes its NEW.
      split_by: the column whose value is the row's group; '' for none.
      allow_outside_root: keep a path that leaves the root, as an absolute one.
    """

    source_root: str
    path_columns: tuple[str, ...] = ("image", "mask")
    format: str = "auto"
    replace_prefix: tuple[tuple[str, str], ...] = ()
    split_by: str = ""
    allow_outside_root: bool = False


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where the header put each thing; -1 where it has none."""

    count: int
    paths: tuple[int, ...]
    key: int
    split: int
    group: int
    others: tuple[tuple[str, int], ...]


class _Fields(NamedTuple):
    """What a line says, before its paths are mended."""

    paths: list[str]
    key: str
    split: str
    group: str
    others: str


# Line number of the record's first line, its text, its cells (None: broken quotes).
_Record = tuple[int, str, "list[str] | None"]


def is_split_name(text: str) -> bool:
    """Says whether `text` may name a split: a shard's name must give it back."""
    return _SPLIT_NAME.fullmatch(text) is not None


def find_manifests(patterns: Sequence[str]) -> list[str]:
    """Resolves file names and globs (also `**`) to absolute paths, sorted, each once.

    Raises:
      ConfigError: a pattern finds no file, or is a folder.
    """
    if not patterns:
        raise ConfigError("no manifest was given")
    found = {os.path.abspath(path) for pattern in patterns for path in _match(pattern)}
    for path in found:
        if _SURROGATE.search(path):
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
      ConfigError: it is no folder, or was not given and the manifests lie in several.
    """
    if source_root is not None:
        if not os.path.isdir(source_root):
            raise ConfigError(f"--source-root {source_root}: there is no such folder")
        return os.path.abspath(source_root)
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
            if set(needed) <= set(_decode_object(line)):
                return
        first = first or _show(line)[:80].strip()
    if first:
        raise ConfigError(
            f"{path}: none of its first lines is a JSON object with {_quote(needed)}, one object "
            f"a line (jq -c '.[]' makes that from an array); it begins with {first}"
        )


def read_manifest(path: str, options: ManifestOptions) -> Iterator[Row | Reject]:
    """Reads a manifest as a stream, in its order.

    Raises:
      ConfigError: the file is not there, has no usable header, or is a damaged .gz.
      PlaceError: the file can't be read (on).
    """
    kind = find_format(path, options)
    make = _RowMaker(path, options).make_row
    with _open_lines(path) as lines:
        records, parse = _start(lines, kind, path, options)
        for line, text, cells in records:
            row: Row | Reject
            try:
                if not text.isascii() or "\0" in text:
                    _check_text(text)
                if cells is None:
                    _refuse(_BAD_QUOTES)
                row = make(parse(cells), line)
            except DataError as error:
                shown = _show(text)[:_TEXT_CHARS]
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
) -> tuple[Iterator[_Record], Callable[[list[str]], _Fields]]:
    """Reads past the header; returns the records and what makes fields of their cells."""
    if kind == "csv":
        records = _split_csv(lines)
        return records, partial(_parse_cells, _read_header(records, path, options))
    if kind == "list":
        columns = _find_columns(list(options.path_columns), f"{path}: a plain list", options)
        return _split_list(lines), partial(_parse_list, columns)
    return _split_lines(lines), partial(_parse_object, options)


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


def _read_header(records: Iterator[_Record], path: str, options: ManifestOptions) -> _Columns:
    _, text, names = next(records, (0, "", None))
    if not text:
        raise ConfigError(f"{path}: is empty; a CSV begins with a line that names its columns")
    if _SURROGATE.search(text) or "\0" in text:
        raise ConfigError(f"{path}: the header is not UTF-8 text; write the file as UTF-8")
    if names is None:
        raise ConfigError(f"{path}: the header: {_BAD_QUOTES}")
    if "" in names:
        raise ConfigError(
            f"{path}: column {names.index('') + 1} of the header has no name; name it or leave "
            "it out (pandas: to_csv(index=False))"
        )
    return _find_columns(names, f"{path}: the header", options)


def _find_columns(names: list[str], where: str, options: ManifestOptions) -> _Columns:
    """Finds each column; `where` begins the message of a ConfigError."""
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{where} has the column {name!r} twice")
    for name in (*options.path_columns, *([options.split_by] if options.split_by else [])):
        if name not in names:
            raise ConfigError(
                f"{where} has no column {name!r}{' of --split-by' * (name == options.split_by)}; "
                f"it has: {_quote(names)}; expected {_quote(options.path_columns)}, and at will "
                "'key', 'split' and further ones (in a CSV, the first line names them)"
            )
    at = {name: index for index, name in enumerate(names)}
    further = sorted(set(names) - {*options.path_columns, "key", "split"})
    return _Columns(
        count=len(names),
        paths=tuple(at[name] for name in options.path_columns),
        key=at.get("key", -1),
        split=at.get("split", -1),
        group=at.get(options.split_by, -1),
        others=tuple((name, at[name]) for name in further),
    )


def _parse_list(columns: _Columns, cells: list[str]) -> _Fields:
    if len(cells) != columns.count:
        _refuse(
            f"the line has {len(cells)} fields, expected {columns.count} between blanks or tabs; "
            "names with blanks and further columns need a CSV with a header, VOC's lists of ids "
            "`pairshard manifest voc`"
        )
    return _parse_cells(columns, cells)


def _parse_cells(columns: _Columns, cells: list[str]) -> _Fields:
    if len(cells) != columns.count:
        _refuse(f"the line has {len(cells)} cells, the header {columns.count} columns")
    cells.append("")  # what a column that is not there (-1) finds
    return _Fields(
        [cells[index] for index in columns.paths],
        cells[columns.key],
        cells[columns.split],
        cells[columns.group],
        _encode_json({name: cells[at] for name, at in columns.others}) if columns.others else "",
    )


def _parse_object(options: ManifestOptions, cells: list[str]) -> _Fields:
    row = _decode_object(cells[0])
    names = list(row)
    group = _group_text(row.get(options.split_by), options.split_by) if options.split_by else ""
    paths = [_path_text(row.pop(name, None), name, names) for name in options.path_columns]
    key, split = row.pop("key", None), row.pop("split", None)
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if not isinstance(key, str | None) or not isinstance(split, str | None):
        _refuse("'key' and 'split' must be text (a key also a whole number), or null")
    try:
        fields = _Fields(paths, key or "", split or "", group, _encode_json(row) if row else "")
    except ValueError:  # 1e999 is read as infinity, which JSON can't say
        _refuse("a number is too large")
    if "\\u" in cells[0]:
        _check_text("".join((*paths, *fields[1:])))
    return fields


def _path_text(value: object, name: str, names: list[str]) -> str:
    if name not in names:
        _refuse(f"the object has no {name!r}; it has: {_quote(names)}")
    if not isinstance(value, str):
        _refuse(f"{name!r} is not text; a path is expected")
    return value


def _group_text(value: object, name: str) -> str:
    if isinstance(value, list | dict):
        _refuse(f"{name!r} is a list or an object; a group's name is expected")
    if value is None:
        return ""
    return value if isinstance(value, str) else _encode_json(value)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        _refuse(f"the object has the name {twice!r} twice")
    return found


def _refuse_constant(text: str) -> NoReturn:
    _refuse(f"{text} is no value of JSON; write null or text")


_encode_json = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode
_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)


def _decode_object(line: str) -> dict[str, object]:
    try:
        value: object = _JSON.decode(line)
    except (ValueError, RecursionError):  # json's own words differ between versions of Python
        value = None
    if not isinstance(value, dict):
        _refuse("the line is no JSON object; one object a line is expected")
    return value


class _RowMaker:
    """Makes rows of fields: mends paths, then checks key, split and group."""

    def __init__(self, manifest: str, options: ManifestOptions) -> None:
        self._manifest = manifest
        self._options = options
        self._root = _normalise(options.source_root)
        self._inside = self._root.rstrip("/") + "/"

    def make_row(self, fields: _Fields, line: int) -> Row:
        """Returns the row; raises DataError(bad_row)."""
        given, key, split, group, others = fields
        if "" in given:
            _refuse(f"the column {self._options.path_columns[given.index('')]!r} is empty")
        if self._options.replace_prefix:
            given = [self._mend(path) for path in given]
        code = message = ""
        if not all(map(_is_clean, given)):
            given, message = self._place_all(given)
            code = "path_outside_root" if message else ""
        key = key or given[0]
        if key.isspace():
            _refuse("the key is nothing but blanks")
        self._check_split(split, group)
        return Row(key, tuple(given), split, others, group, code, message, self._manifest, line)

    def _check_split(self, split: str, group: str) -> None:
        if split and not is_split_name(split):
            _refuse(
                f"the split {split[:100]!r} can't begin a shard's name: up to 64 of A-Z a-z 0-9 "
                "_ . - are expected, a letter or digit first, without '-NUMBER-of-'"
            )
        if self._options.split_by and not split and not group.strip():
            _refuse(f"the column {self._options.split_by!r} of --split-by is empty")

    def _mend(self, path: str) -> str:
        for old, new in self._options.replace_prefix:
            if path.startswith(old):
                return new + path[len(old) :]
        return path

    def _place_all(self, given: list[str]) -> tuple[list[str], str]:
        """Returns the paths as the index names them, and what is wrong with them."""
        placed = [self._place(path) for path in given]
        outside = [path for path, is_inside in placed if not is_inside]
        message = (
            ""
            if not outside
            else (
                f"{_quote(outside)}: outside the source root; expected a file below it: choose "
                "--source-root so that it holds all files, mend how paths begin with "
                "--replace-prefix OLD=NEW, or pass --allow-outside-root"
            )
        )
        return [path for path, _ in placed], message

    def _place(self, path: str) -> tuple[str, bool]:
        is_absolute = path.startswith("/") or _SCHEME.match(path)
        whole = _normalise(path if is_absolute else self._inside + path)
        if whole == self._root:
            _refuse(f"the path {path!r} is the source root itself; expected a file below it")
        if whole.startswith(self._inside):
            return whole[len(self._inside) :], True
        # Outside, the path stands as given: where the root is must not reach a reject.
        return (whole, True) if self._options.allow_outside_root else (_normalise(path), False)


def _is_clean(path: str) -> bool:
    # True for most paths, and much faster than normalising them.
    return path != "" and (
        path[0] not in "./" and path[-1] != "/" and "//" not in path and "/." not in path
    )


def _normalise(path: str) -> str:
    """Drops '.', '..' and doubled slashes by the text alone; a bucket has nothing above it."""
    scheme = _SCHEME.match(path)
    if scheme:
        return scheme.group() + posixpath.normpath("/" + path[scheme.end() :].lstrip("/"))[1:]
    return posixpath.normpath("/" + path.lstrip("/") if path.startswith("/") else path)


def _refuse(message: str) -> NoReturn:
    raise DataError("bad_row", message)


def _check_text(text: str) -> None:
    if _SURROGATE.search(text):
        _refuse("the line is not UTF-8 text; write the manifest as UTF-8")
    if "\0" in text:
        _refuse("the line holds a NUL character, which no file's name can")


def _show(text: str) -> str:
    data = text.rstrip("\r\n").encode("utf-8", "surrogateescape")
    return data.decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def _quote(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
