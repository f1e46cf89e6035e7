"""What is in a data set, as text: the whole of it, its first records, or one by its key.

It looks and does not check: that is `pairshard verify`. It imports neither Beam nor TensorFlow.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from beam_pipeline.output import open_dataset
from beam_pipeline.tables import format_bytes, format_table
from transforms.core import files, images, index, keys
from transforms.core.errors import ConfigError
from transforms.core.examples import BytesList, Feature, Int64List, decode_example
from transforms.core.files import Fingerprint
from transforms.core.index import WRITTEN, IndexFileError, IndexRow
from transforms.core.pairs import FEATURES, PATH_COLUMNS
from transforms.core.reports import DATASET, REJECTS
from transforms.core.shards import ShardId, index_name, parse_shard_name
from transforms.core.tfrecord import FRAME_BYTES, Frame, FrameError, read_frame

LONGEST_TEXT = 100  # bytes of a feature that are shown as text
NEAR_KEYS = 3
COMPARED_KEYS = 50_000  # of more keys than these, the nearest is not searched for
_VERIFY = "`pairshard verify` says all that is wrong"

Dataset = Mapping[str, Any]
"""The content of dataset.json."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a key stands: the shard's name and the row of its index."""

    shard: str
    row: IndexRow


def format_dataset(folder: str) -> str:
    """Returns tables of a data set's splits, pictures, classes, rejects and settings.

    Raises:
      ConfigError: the folder holds no data set.
    """
    dataset = open_dataset(folder)
    try:
        lines = [f"{folder}: {dataset['kind']}, payload {dataset['payload']}"]
        lines += format_table(("split", "shards", "records", "bytes"), [*_split_rows(dataset)])
        lines.append(f"pictures: {_describe_sizes(folder, dataset)}")
        lines += _describe_rows(dataset["rows"])
        lines += format_table(("class", "name", "pixels", "share"), [*_class_rows(dataset)])
        return "\n".join([*lines, _describe_settings(dataset)])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{folder}/{DATASET} is damaged: {error!r}") from error


def format_records(folder: str, n: int) -> Iterator[str]:
    """Yields the features of the first records, shard after shard.

    Args:
      folder: of the data set.
      n: how many, at least 1.

    Raises:
      ConfigError: the folder holds no data set, or a shard is missing or damaged.
    """
    if n < 1:
        raise ConfigError(f"--records {n}: at least 1 is meant")
    dataset = open_dataset(folder)
    left = n
    for name in _shard_names(dataset):
        for frame in _read_frames(folder, name):
            yield "\n".join(_describe_record(name, frame, dataset))
            left -= 1
            if not left:
                return


def format_record(folder: str, key: str, *, save: str | None = None) -> str:
    """Returns where a key's record is, or why there is none.

    Args:
      folder: of the data set.
      key: of the row.
      save: the folder that its image and its mask are written into; None: they are not.

    Raises:
      ConfigError: no row has the key, or it has no record to be saved, or a file is there.
    """
    dataset = open_dataset(folder)
    places = _find_key(folder, dataset, key)
    lines = [f"key       {key}"]
    for place in places:
        lines += _describe_place(place, dataset)
    if save is None:
        return "\n".join(lines)
    written = next((place for place in places if place.row.status == WRITTEN), None)
    if written is None:
        raise ConfigError(f"--save: the row of {key} was rejected, there is no record of it")
    return "\n".join([*lines, *_save(folder, dataset, written, os.path.abspath(save))])


def _shard_names(dataset: Dataset) -> list[str]:
    return [str(s["name"]) for split in dataset["splits"].values() for s in split["shards"]]


# The whole data set.


def _split_rows(dataset: Dataset) -> Iterator[tuple[str, ...]]:
    for name, split in dataset["splits"].items():
        size = format_bytes(split["bytes"])
        yield (name, f"{len(split['shards']):,}", f"{split['records']:,}", size)


def _describe_sizes(folder: str, dataset: Dataset) -> str:
    """The common size; where there is none, the range, from the metadata of the indexes."""
    feature = next(f for f in FEATURES[dataset["payload"]].items() if f[1].array == "image")[0]
    height, width, _ = dataset["features"][feature]["array"]["shape"]
    if height and width:
        return f"{width}×{height} (width×height)"
    height, width = height or _range(folder, dataset, 0), width or _range(folder, dataset, 1)
    return f"{width} wide, {height} high"


def _range(folder: str, dataset: Dataset, side: int) -> str:
    values: list[int] = []
    for name in _shard_names(dataset):
        try:
            info = index.read_info(os.path.join(folder, index_name(name)))
        except IndexFileError:
            info = None
        if info and info.records:
            values += (info.heights, info.widths)[side]
    return f"{min(values)} to {max(values)}" if values else "?"


def _describe_rows(rows: Mapping[str, Any]) -> list[str]:
    rejected = sum(rows["rejected"].values())
    where = f" ({REJECTS} says why)" if rejected else ""
    return [
        f"rows: {rows['read']:,} read = {rows['written']:,} written + {rejected:,} rejected{where}",
        *(f"  {code}: {number:,}" for code, number in rows["rejected"].items()),
    ]


def _class_rows(dataset: Dataset) -> Iterator[tuple[str, ...]]:
    classes = dataset["classes"]
    total = sum(entry["pixels"] for entry in classes.values())
    for value, entry in classes.items():
        name = entry.get("name", "") or ("(ignored)" if entry.get("ignored") else "")
        yield (value, name, f"{entry['pixels']:,}", f"{_percent(entry['pixels'], total)}")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "-"


def _describe_settings(dataset: Dataset) -> str:
    settings = dataset["settings"]
    shares = ", ".join(f"{name}={share}" for name, share in settings["splits"])
    by = f" by {settings['split_by']}" if settings["split_by"] else ""
    classes = settings["classes"]
    number = len(classes) if isinstance(classes, list) else classes or "any"
    return (
        f"settings: splits {shares}{by}, seed {settings['seed']}, classes {number}, ignore id "
        f"{settings['ignore_id']}, max pixels {settings['max_pixels']:,}, pillow "
        f"{dataset['decoders']['pillow']}, format version {dataset['format_version']}"
    )


# Records.


def _read_frames(folder: str, name: str) -> Iterator[Frame]:
    offset = 0
    while frame := _read_frame(folder, name, offset):
        yield frame
        offset += len(frame.data) + FRAME_BYTES


def _read_frame(folder: str, name: str, offset: int) -> Frame | None:
    """Reads one frame; None at the shard's end.

    Raises:
      ConfigError: the shard is missing, or the frame is damaged.
    """
    path = os.path.join(folder, name)
    try:
        with files.open_file(path) as file, files.place_errors(path, "reading"):
            file.seek(offset)
            return read_frame(file, offset, limit=files.file_size(path) or 0)
    except FileNotFoundError as error:
        raise ConfigError(f"{name} is missing; {_VERIFY}") from error
    except FrameError as error:
        raise ConfigError(f"{name} at {offset}: {error.reason}; {_VERIFY}") from error


def _decode(name: str, frame: Frame) -> dict[str, Feature]:
    try:
        return decode_example(frame.data)
    except ValueError as error:
        raise ConfigError(f"{name} at {frame.offset}: {error}; {_VERIFY}") from error


def _describe_record(name: str, frame: Frame, dataset: Dataset) -> Iterator[str]:
    features = _decode(name, frame)
    yield f"{name} at {frame.offset:,}: {len(frame.data):,} bytes"
    width = max((len(feature) for feature in features), default=0)
    specs = FEATURES.get(dataset["payload"], {})
    size = [_first_int(features.get(side)) for side in ("height", "width")]
    for feature, value in sorted(features.items()):
        shape = ""
        if dataset["payload"] == "raw" and feature in specs and specs[feature].array:
            depth = [3] if specs[feature].array == "image" else []
            shape = f", uint8[{', '.join(map(str, size + depth))}]"
        yield f"  {feature.ljust(width)}  {_describe_feature(value)}{shape}"


def _describe_feature(feature: Feature) -> str:
    if isinstance(feature, BytesList):
        return "bytes  " + ", ".join(map(_describe_bytes, feature.values))
    dtype = "int64" if isinstance(feature, Int64List) else "float"
    return f"{dtype}  " + ", ".join(map(str, feature.values))


def _describe_bytes(value: bytes) -> str:
    """Text, where it is short and can be printed; its length, where it is not."""
    try:
        text = value.decode("utf-8") if len(value) <= LONGEST_TEXT else ""
    except UnicodeDecodeError:
        text = ""
    return repr(text) if text.isprintable() and text else f"{len(value):,} bytes"


def _first_int(feature: Feature | None) -> int:
    return feature.values[0] if isinstance(feature, Int64List) and feature.values else -1


# One record.


@dataclass(slots=True)
class _Search:
    """What a search through the indexes has seen.

    Attributes:
      places: rows that have the key.
      near: keys that resemble it.
      compared: keys that it was held against for that.
      unread: indexes that are missing or damaged.
    """

    places: list[Place] = field(default_factory=list)
    near: list[str] = field(default_factory=list)
    compared: int = 0
    unread: list[str] = field(default_factory=list)

    def look(self, folder: str, shard: str, key: str) -> list[str]:
        """Looks for a key in a shard's index, and returns all the keys that are there."""
        path = os.path.join(folder, index_name(shard))
        try:
            found: list[str] = index.read_table(path, ["key"])["key"].to_pylist()
            if key in found:
                rows = index.read_index(path, PATH_COLUMNS)
                self.places += [Place(shard, row) for row in rows if row.key == key]
        except (FileNotFoundError, IndexFileError):
            self.unread.append(index_name(shard))
            return []
        return found

    def compare(self, found: Sequence[str], key: str) -> None:
        """Keeps the keys that are nearest to the one that was not found."""
        stem = os.path.splitext(os.path.basename(key))[0] or key
        self.near += [other for other in found if stem in other][:NEAR_KEYS]
        if self.compared < COMPARED_KEYS:
            self.compared += len(found)
            self.near += difflib.get_close_matches(key, found, n=NEAR_KEYS)


def _find_key(folder: str, dataset: Dataset, key: str) -> list[Place]:
    """Finds all rows of a key: the record, and what was rejected as its duplicate.

    The key alone says where it must be in each split; only where it is not, all are searched.
    """
    search = _Search()
    names = _shard_names(dataset)
    order = keys.order_of(key, seed=dataset["settings"]["seed"])
    for name in names:
        if _may_hold(parse_shard_name(name), order):
            search.look(folder, name, key)
    if not search.places:
        search.unread.clear()
        for name in names:
            search.compare(search.look(folder, name, key), key)
    if not search.places:
        raise ConfigError(_explain_unknown(search, key))
    return sorted(search.places, key=lambda place: place.row.status != WRITTEN)


def _may_hold(shard: ShardId | None, order: int) -> bool:
    return shard is None or keys.shard_of(order, num_shards=shard.num_shards) == shard.index


def _explain_unknown(search: _Search, key: str) -> str:
    near = list(dict.fromkeys(search.near))
    ranked = difflib.get_close_matches(key, near, n=NEAR_KEYS, cutoff=0)
    hint = f"; the nearest are {', '.join(ranked)}" if ranked else ""
    unread = f"; {', '.join(search.unread[:3])} can't be read: {_VERIFY}" if search.unread else ""
    return f"no row has the key {key}{hint}{unread}"


def _describe_place(place: Place, dataset: Dataset) -> Iterator[str]:
    row, shard = place.row, parse_shard_name(place.shard)
    yield f"split     {shard.split if shard else '?'}"
    for column, path, known in zip(PATH_COLUMNS, row.paths, row.fingerprints, strict=True):
        yield f"{column.ljust(8)}  {path}{_describe_source(known)}"
    if row.status != WRITTEN:
        yield f"rejected  {row.code}: {row.message}"
        return
    yield f"shard     {place.shard}"
    yield f"offset    {row.offset} (of the frame; the data begins 12 bytes behind it)"
    yield f"length    {row.length} (of the data; crc32c {row.crc32c:08x})"
    yield f"size      {row.width}×{row.height} (width×height)"
    total = sum(pixels for _, pixels in row.pixel_counts)
    for value, pixels in row.pixel_counts:
        name = dataset["classes"].get(str(value), {}).get("name", "")
        label = f"{value} {name}".rstrip()
        yield f"class     {label}: {pixels:,} pixels, {_percent(pixels, total)}"


def _describe_source(known: Fingerprint | None) -> str:
    if known is None:
        return ""
    time = datetime.fromtimestamp(known.mtime_ns // 10**9, timezone.utc)
    crc = f", crc32c {known.crc32c:08x}" if known.crc32c is not None else ""
    return f" ({known.size_bytes:,} bytes, {time:%Y-%m-%d %H:%M:%S} UTC{crc})"


# Saving.


def _save(folder: str, dataset: Dataset, place: Place, target: str) -> list[str]:
    """Writes a record's image and mask; returns what is printed of it."""
    frame = _read_frame(folder, place.shard, place.row.offset)
    if frame is None or frame.crc32c != place.row.crc32c:
        raise ConfigError(
            f"{place.shard} at {place.row.offset}: another record stands here; {_VERIFY}"
        )
    features = _decode(place.shard, frame)
    unpack = _unpack_raw if dataset["payload"] == "raw" else _unpack_encoded
    try:
        image, ending, mask = unpack(features)
    except (KeyError, IndexError, ValueError) as error:
        raise ConfigError(
            f"{place.shard} at {place.row.offset}: the record is damaged: {error!r}; {_VERIFY}"
        ) from error
    stem = _file_stem(place.row.key)
    named = {f"{stem}.{ending}": image, f"{stem}-mask.png": mask}
    return [f"wrote     {path}" for path in _write_new(target, named)]


def _unpack_raw(features: Mapping[str, Feature]) -> tuple[bytes, str, bytes]:
    """Returns the image as a file, the ending of its name, and the mask as a file."""
    height, width = (_first_int(features[side]) for side in ("height", "width"))
    image = images.encode_rgb_png(_first_bytes(features["image_raw"]), height, width)
    ids = _first_bytes(features["mask_raw"])
    return image, "png", images.encode_palette_png(ids, height, width)


def _unpack_encoded(features: Mapping[str, Feature]) -> tuple[bytes, str, bytes]:
    ending = {b"jpeg": "jpg"}.get(_first_bytes(features["image/format"]), "png")
    name = "image/segmentation/class/encoded"
    data = _first_bytes(features[name])
    height, width = (_first_int(features[f"image/{side}"]) for side in ("height", "width"))
    mask = images.decode_mask(data, name, max_pixels=height * width)
    palette = images.encode_palette_png(mask.ids, mask.height, mask.width)
    return _first_bytes(features["image/encoded"]), ending, palette


def _first_bytes(feature: Feature) -> bytes:
    if not isinstance(feature, BytesList):
        raise ValueError("bytes were expected")
    return feature.values[0]


def _file_stem(key: str) -> str:
    """A key as a file's name: all of it, since names alone may be the same in two folders."""
    stem = os.path.splitext(key)[0] or key
    return re.sub(r"[^\w.-]+", "_", stem).lstrip(".")[:80] or "record"


def _write_new(folder: str, named: Mapping[str, bytes]) -> Iterable[str]:
    """Writes files that were not there before, all or none of them."""
    paths = [os.path.join(folder, name) for name in named]
    for path in paths:
        if os.path.lexists(path):
            raise ConfigError(f"--save: {path} is there already; it is not overwritten")
    with files.place_errors(folder):
        os.makedirs(folder, exist_ok=True)
    for path, data in zip(paths, named.values(), strict=True):
        with files.place_errors(path), open(path, "xb") as file:
            file.write(data)
    return paths
