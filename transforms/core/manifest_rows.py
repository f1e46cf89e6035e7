"""What one line of a manifest says: its columns, its paths below the root, its key.

`transforms.core.manifests` cuts files into lines and lines into cells; here the cells of one
line become a `Row`, or a `DataError` with the code bad_row.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from transforms.core.errors import ConfigError, DataError
from transforms.core.rows import Row

SURROGATE = re.compile("[\ud800-\udfff]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# A split is the first part of a shard's name: SPLIT-00000-of-00008.tfrecord.
_SPLIT_NAME = re.compile(r"(?!.*-[0-9]+-of-)[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


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
class Columns:
    """Where the header put each thing; -1 where it has none."""

    count: int
    paths: tuple[int, ...]
    key: int
    split: int
    group: int
    others: tuple[tuple[str, int], ...]


class Fields(NamedTuple):
    """What a line says, before its paths are mended."""

    paths: list[str]
    key: str
    split: str
    group: str
    others: str


def is_split_name(text: str) -> bool:
    """Says whether `text` may name a split: a shard's name must give it back."""
    return _SPLIT_NAME.fullmatch(text) is not None


def find_columns(names: list[str], where: str, options: ManifestOptions) -> Columns:
    """Finds each column; `where` begins the message of a ConfigError."""
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{where} has the column {name!r} twice")
    for name in (*options.path_columns, *([options.split_by] if options.split_by else [])):
        if name not in names:
            raise ConfigError(
                f"{where} has no column {name!r}{' of --split-by' * (name == options.split_by)}; "
                f"it has: {quote_names(names)}; expected {quote_names(options.path_columns)}, "
                "and at will 'key', 'split' and further ones (in a CSV, the first line names them)"
            )
    at = {name: index for index, name in enumerate(names)}
    further = sorted(set(names) - {*options.path_columns, "key", "split"})
    return Columns(
        count=len(names),
        paths=tuple(at[name] for name in options.path_columns),
        key=at.get("key", -1),
        split=at.get("split", -1),
        group=at.get(options.split_by, -1),
        others=tuple((name, at[name]) for name in further),
    )


def parse_list(columns: Columns, cells: list[str]) -> Fields:
    if len(cells) != columns.count:
        refuse(
            f"the line has {len(cells)} fields, expected {columns.count} between blanks or tabs; "
            "names with blanks and further columns need a CSV with a header, VOC's lists of ids "
            "`pairshard manifest voc`"
        )
    return parse_cells(columns, cells)


def parse_cells(columns: Columns, cells: list[str]) -> Fields:
    if len(cells) != columns.count:
        refuse(
            f"the line has {len(cells)} cells, expected {columns.count} as the header has; put a "
            "cell that holds a comma in quotes"
        )
    cells.append("")  # what a column that is not there (-1) finds
    return Fields(
        [cells[index] for index in columns.paths],
        cells[columns.key],
        cells[columns.split],
        cells[columns.group],
        _encode_json({name: cells[at] for name, at in columns.others}) if columns.others else "",
    )


def parse_object(options: ManifestOptions, cells: list[str]) -> Fields:
    row = decode_object(cells[0])
    names = list(row)
    group = _group_text(row.get(options.split_by), options.split_by) if options.split_by else ""
    paths = [_path_text(row.pop(name, None), name, names) for name in options.path_columns]
    key, split = row.pop("key", None), row.pop("split", None)
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if not isinstance(key, str | None) or not isinstance(split, str | None):
        refuse("'key' and 'split' must be text (a key also a whole number), or null")
    try:
        fields = Fields(paths, key or "", split or "", group, _encode_json(row) if row else "")
    except ValueError:  # 1e999 is read as infinity, which JSON can't say
        refuse("a number is too large")
    if "\\u" in cells[0]:
        check_text("".join((*paths, *fields[1:])))
    return fields


def _path_text(value: object, name: str, names: list[str]) -> str:
    if name not in names:
        refuse(f"the object has no {name!r}; it has: {quote_names(names)}")
    if not isinstance(value, str):
        refuse(f"{name!r} is not text; a path is expected")
    return value


def _group_text(value: object, name: str) -> str:
    if isinstance(value, list | dict):
        refuse(f"{name!r} is a list or an object; a group's name is expected")
    if value is None:
        return ""
    return value if isinstance(value, str) else _encode_json(value)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        refuse(f"the object has the name {twice!r} twice")
    return found


def _refuse_constant(text: str) -> NoReturn:
    refuse(f"{text} is no value of JSON; write null or text")


_encode_json = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
).encode
_JSON = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant)


def decode_object(line: str) -> dict[str, object]:
    try:
        value: object = _JSON.decode(line)
    except (ValueError, RecursionError):  # json's own words differ between versions of Python
        value = None
    if not isinstance(value, dict):
        refuse("the line is no JSON object; one object a line is expected")
    return value


class RowMaker:
    """Makes rows of fields: mends paths, then checks key, split and group."""

    def __init__(self, manifest: str, options: ManifestOptions) -> None:
        self._manifest = manifest
        self._options = options
        self._root = _normalise(options.source_root)
        self._inside = self._root.rstrip("/") + "/"

    def make_row(self, fields: Fields, line: int) -> Row:
        """Returns the row; raises DataError(bad_row)."""
        given, key, split, group, others = fields
        if "" in given:
            refuse(f"the column {self._options.path_columns[given.index('')]!r} is empty")
        if self._options.replace_prefix:
            given = [self._mend(path) for path in given]
        code = message = ""
        if not all(map(_is_clean, given)):
            given, message = self._place_all(given)
            code = "path_outside_root" if message else ""
        key = key or given[0]
        if key.isspace():
            refuse("the key is nothing but blanks")
        self._check_split(split, group)
        return Row(key, tuple(given), split, others, group, code, message, self._manifest, line)

    def _check_split(self, split: str, group: str) -> None:
        if split and not is_split_name(split):
            refuse(
                f"the split {split[:100]!r} can't begin a shard's name: up to 64 of A-Z a-z 0-9 "
                "_ . - are expected, a letter or digit first, without '-NUMBER-of-'"
            )
        if self._options.split_by and not split and not group.strip():
            refuse(f"the column {self._options.split_by!r} of --split-by is empty")

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
                f"{quote_names(outside)}: outside the source root; expected a file below it: "
                "choose --source-root so that it holds all files, mend how paths begin with "
                "--replace-prefix OLD=NEW, or pass --allow-outside-root"
            )
        )
        return [path for path, _ in placed], message

    def _place(self, path: str) -> tuple[str, bool]:
        is_absolute = path.startswith("/") or _SCHEME.match(path)
        whole = _normalise(path if is_absolute else self._inside + path)
        if whole == self._root:
            refuse(f"the path {path!r} is the source root itself; expected a file below it")
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


def refuse(message: str) -> NoReturn:
    raise DataError("bad_row", message)


def check_text(text: str) -> None:
    if SURROGATE.search(text):
        refuse("the line is not UTF-8 text; write the manifest as UTF-8")
    if "\0" in text:
        refuse("the line holds a NUL character, which no file's name can")


def show_text(text: str) -> str:
    data = text.rstrip("\r\n").encode("utf-8", "surrogateescape")
    return data.decode("utf-8", "backslashreplace").replace("\0", "\\x00")


def quote_names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
