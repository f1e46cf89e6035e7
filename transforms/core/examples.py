"""tf.train.Example, encoded and decoded without TensorFlow.

`SerializeToString()` of a proto map may differ from process to process; here the features
stand sorted by name, which is what `SerializeToString(deterministic=True)` writes, byte for
byte. The encoder returns the pieces of the record, so that half a megabyte of pixels is
handed to the kernel (`os.writev`) without being copied once more.

Source: tensorflow/core/example/feature.proto and example.proto; protobuf's encoding guide.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_BYTES, _FLOAT, _INT64 = 1, 2, 3  # the field numbers in message Feature


@dataclass(frozen=True, slots=True)
class BytesList:
    """A feature of byte strings."""

    values: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class FloatList:
    """A feature of 32-bit floats."""

    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Int64List:
    """A feature of whole numbers in [-2**63, 2**63)."""

    values: Sequence[int]


Feature = BytesList | FloatList | Int64List


def encode_example(features: Mapping[str, Feature]) -> list[bytes]:
    """Returns the pieces of one serialized tf.train.Example, to be written one after another.

    A byte string of `BytesList` is one of the pieces as it is: it is not copied.

    Args:
      features: by name; names sort by their UTF-8 bytes, but one that begins another one comes
        after it, as in the deterministic mode of Python's protobuf (upb's _upb_mapsorter_cmpstr).
    """
    entries: list[tuple[list[bytes], int]] = []
    total = 0
    for name in sorted(features, key=lambda text: text.encode("utf-8") + b"\xff"):
        pieces, size = _encode_feature(features[name])
        raw = name.encode("utf-8")
        head = b"\n%b%b\x12%b" % (_varint(len(raw)), raw, _varint(size))
        entry = b"\n" + _varint(len(head) + size) + head
        entries.append(([entry, *pieces], len(entry) + size))
        total += len(entry) + size
    return _join_small([b"\n" + _varint(total), *(p for pieces, _ in entries for p in pieces)])


def decode_example(data: bytes | memoryview) -> dict[str, Feature]:
    """Parses a serialized tf.train.Example.

    Byte strings are copied out of `data`.

    Raises:
      ValueError: the bytes are no Example.
    """
    features: dict[str, Feature] = {}
    try:
        for field, body in _fields(memoryview(data)):
            if field == 1:
                for inner, entry in _fields(_as_view(body)):
                    if inner == 1:
                        name, value = _decode_entry(_as_view(entry))
                        features[name] = value
    except (LookupError, struct.error, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"the bytes are no tf.train.Example: {error}") from error
    return features


def _encode_feature(feature: Feature) -> tuple[list[bytes], int]:
    if isinstance(feature, BytesList):
        pieces: list[bytes] = []
        for value in feature.values:
            pieces += [b"\n" + _varint(len(value)), value]
        return _wrap(_BYTES, pieces)
    if not feature.values:
        return _wrap(_FLOAT if isinstance(feature, FloatList) else _INT64, [])
    if isinstance(feature, FloatList):
        packed = struct.pack(f"<{len(feature.values)}f", *feature.values)
        return _wrap(_FLOAT, [b"\n" + _varint(len(packed)) + packed])
    packed = b"".join([_varint(value & 0xFFFF_FFFF_FFFF_FFFF) for value in feature.values])
    return _wrap(_INT64, [b"\n" + _varint(len(packed)) + packed])


def _wrap(field: int, pieces: list[bytes]) -> tuple[list[bytes], int]:
    size = sum(map(len, pieces))
    head = _varint(field << 3 | 2) + _varint(size)
    return [head, *pieces], len(head) + size


def _join_small(pieces: list[bytes], limit: int = 4096) -> list[bytes]:
    """Joins neighbours that are cheaper to copy than to hand over one by one."""
    joined: list[bytes] = []
    small: list[bytes] = []
    for piece in pieces:
        if len(piece) < limit:
            small.append(piece)
            continue
        joined += [b"".join(small), piece]
        small = []
    return [piece for piece in [*joined, b"".join(small)] if piece]


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("the bytes are no tf.train.Example: a number of over 64 bits")


def _fields(view: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Yields (field number, body) of a message; a body that ends too early is an IndexError."""
    at = 0
    while at < len(view):
        tag, at = _read_varint(view, at)
        wire = tag & 7
        if wire == 0:
            number, at = _read_varint(view, at)
            yield tag >> 3, number
            continue
        size, at = _read_varint(view, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
        if at + size > len(view):
            raise IndexError("a field ends behind the record's end")
        yield tag >> 3, view[at : at + size]
        at += size


def _as_view(body: memoryview | int) -> memoryview:
    if isinstance(body, int):
        raise TypeError("a number where a message was expected")
    return body


def _decode_entry(view: memoryview) -> tuple[str, Feature]:
    name, feature = "", memoryview(b"")
    for field, body in _fields(view):
        if field == 1:
            name = bytes(_as_view(body)).decode("utf-8")
        elif field == 2:
            feature = _as_view(body)
    return name, _decode_feature(feature)


def _decode_feature(view: memoryview) -> Feature:
    for field, body in _fields(view):
        items = [item for number, item in _fields(_as_view(body)) if number == 1]
        if field == _BYTES:
            return BytesList([bytes(_as_view(item)) for item in items])
        if field == _FLOAT:
            raw = b"".join([_as_view(item) for item in items])
            return FloatList(struct.unpack(f"<{len(raw) // 4}f", raw))
        if field == _INT64:
            return Int64List([_signed(number) for item in items for number in _numbers(item)])
    return BytesList([])


def _numbers(item: memoryview | int) -> Iterator[int]:
    if isinstance(item, int):  # written unpacked, as old writers do
        yield item
        return
    at = 0
    while at < len(item):
        value, at = _read_varint(item, at)
        yield value


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
