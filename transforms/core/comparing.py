"""Records against their sources, with TensorFlow's parser and Pillow's own words.

This is the second opinion: it shares no decoding with the build. A record's features are
parsed by TensorFlow, as training will; a source is opened again and is what
`np.array(Image.open(path))` says. It runs in a process of its own (`transforms.core.child`),
since importing TensorFlow costs seconds and half a gigabyte.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import google_crc32c
import numpy as np
from PIL import Image

from transforms.core.files import Fingerprint
from transforms.core.index import IndexRow
from transforms.core.pairs import FEATURES
from transforms.core.tfrecord import HEADER_BYTES

Parsed = Mapping[str, bytes | int]


@dataclass(frozen=True, slots=True)
class CompareTask:
    """Some records of one shard.

    Attributes:
      shard: the file's path.
      payload: 'raw' or 'encoded'.
      source_root: where the sources are now.
      rows: of the index, one per record.
    """

    shard: str
    payload: str
    source_root: str
    rows: Sequence[IndexRow]


@dataclass(frozen=True, slots=True)
class Difference:
    """A record that is not what its sources say.

    Attributes:
      row: its index row.
      what: differs.
      source_changed: a source is another one than at the build, so nothing can be said.
    """

    row: IndexRow
    what: str
    source_changed: bool = False


class _Changed(Exception):
    """A source is missing, or its bytes are not those of the build."""


def compare_records(task: CompareTask, note: Callable[[object], None]) -> list[Difference]:
    """Compares records with their sources, pixel by pixel.

    Args:
      task: the records.
      note: called with 1 after each record.

    Returns:
      Those that differ, in the order of the task.
    """
    found: list[Difference] = []
    parse = _load_parser(task.payload)
    with open(task.shard, "rb") as shard:
        for row in task.rows:
            shard.seek(row.offset + HEADER_BYTES)
            try:
                what = _compare(parse(shard.read(row.length)), row, task)
                found += [Difference(row, what)] if what else []
            except _Changed as changed:
                found.append(Difference(row, str(changed), source_changed=True))
            note(1)
    return found


@lru_cache
def _load_parser(payload: str) -> Callable[[bytes], Parsed]:
    """Returns TensorFlow's parser for the features of a payload."""
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    import tensorflow as tf  # noqa: PLC0415 - here alone, and only in a process of its own

    dtypes = {"int64": tf.int64, "bytes": tf.string}
    features = {
        name: tf.io.FixedLenFeature([], dtypes[spec.dtype])
        for name, spec in FEATURES[payload].items()
    }

    def parse(record: bytes) -> Parsed:
        parsed = tf.io.parse_single_example(record, features)
        return {name: value.numpy() for name, value in parsed.items()}

    return parse


def _compare(parsed: Parsed, row: IndexRow, task: CompareTask) -> str:
    """Returns what differs, or ''."""
    image, mask = (
        _read_source(task.source_root, path, known)
        for path, known in zip(row.paths, row.fingerprints, strict=True)
    )
    differences = _compare_raw if task.payload == "raw" else _compare_encoded
    return "; ".join(differences(parsed, image, mask, row))


def _read_source(root: str, path: str, known: Fingerprint | None) -> bytes:
    try:
        with open(os.path.join(root, path), "rb") as file:
            data = file.read()
    except OSError as error:
        raise _Changed(f"{path} can't be read now: {error.strerror}") from error
    if known is not None and google_crc32c.value(data) != known.crc32c:
        raise _Changed(
            f"{path} has changed since it was read ({known.size_bytes} bytes then, {len(data)} "
            "bytes now, another crc32c)"
        )
    return data


def _compare_raw(parsed: Parsed, image: bytes, mask: bytes, row: IndexRow) -> Iterator[str]:
    pixels = np.array(Image.open(io.BytesIO(image)).convert("RGB"))
    ids = np.array(Image.open(io.BytesIO(mask)))
    yield from _compare_size(parsed["height"], parsed["width"], ids.shape)
    yield from _compare_array("image_raw", parsed["image_raw"], pixels, row.paths[0])
    yield from _compare_array("mask_raw", parsed["mask_raw"], ids, row.paths[1])


def _compare_encoded(parsed: Parsed, image: bytes, mask: bytes, row: IndexRow) -> Iterator[str]:
    import tensorflow as tf  # noqa: PLC0415 - see _load_parser

    ids = np.array(Image.open(io.BytesIO(mask)))
    opened = Image.open(io.BytesIO(image))
    yield from _compare_size(parsed["image/height"], parsed["image/width"], ids.shape)
    if parsed["image/encoded"] != image:
        yield f"image/encoded: is not the bytes of {row.paths[0]}"
    expected = {
        "image/format": (opened.format or "").lower().replace("mpo", "jpeg").encode(),
        "image/filename": row.paths[0].encode(),
        "image/channels": 3,
        "image/segmentation/class/format": b"png",
    }
    for name, value in expected.items():
        if parsed[name] != value:
            yield f"{name}: is {parsed[name]!r}, expected {value!r}"
    # TensorFlow's own eyes: what training will see must be the ids, not grey levels of colours.
    seen = tf.io.decode_png(parsed["image/segmentation/class/encoded"], channels=1).numpy()
    name = "image/segmentation/class/encoded"
    yield from _compare_array(name, seen.tobytes(), ids, row.paths[1])


def _compare_size(
    height: bytes | int, width: bytes | int, expected: tuple[int, ...]
) -> Iterator[str]:
    if (height, width) != expected:
        yield f"height and width: are {height}×{width}, expected {expected[0]}×{expected[1]}"


def _compare_array(
    name: str,
    found: bytes | int,
    expected: np.ndarray[tuple[int, ...], np.dtype[np.uint8]],
    path: str,
) -> Iterator[str]:
    """Compares bytes with an array (uint8, row-major), and says where they begin to differ."""
    values = np.frombuffer(found if isinstance(found, bytes) else b"", np.uint8)
    if values.size != expected.size:
        yield f"{name}: has {values.size} bytes, {path} has {expected.size} values"
        return
    wrong = np.flatnonzero(values != expected.ravel())
    if wrong.size:
        first = np.unravel_index(wrong[0], expected.shape)
        place = ", ".join(map(str, map(int, first)))
        yield (
            f"{name}: {wrong.size} of {values.size} values differ from {path}, first at "
            f"[{place}]: {values[wrong[0]]}, expected {expected[first]}"
        )
