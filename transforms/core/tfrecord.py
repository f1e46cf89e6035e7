"""The framing of TFRecord files, and nothing else.

A record is: its length (8 bytes, little-endian), the masked CRC-32C of those 8 bytes, the
data, the masked CRC-32C of the data.

Source: tensorflow/core/lib/io/record_writer.h ("Format of a single record").
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import BinaryIO

import google_crc32c

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_POLYNOMIAL = 0x82F63B78  # of CRC-32C (RFC 3720), bits reversed


class FrameError(Exception):
    """A frame of a TFRecord file is wrong.

    Attributes:
      offset: the byte at which the frame begins.
      reason: what is wrong with it.
    """

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(offset, reason)
        self.offset = offset
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Frame:
    """One record of a TFRecord file, read and checked.

    Attributes:
      offset: the byte at which the frame (not the data) begins.
      data: the record.
      crc32c: of the data, unmasked.
    """

    offset: int
    data: bytes
    crc32c: int


def crc32c_of(pieces: Iterable[bytes], crc: int = 0) -> int:
    """Returns the CRC-32C of pieces that stand one after another, going on from `crc`."""
    for piece in pieces:
        crc = google_crc32c.extend(crc, piece)
    return crc


def join_crcs(first: int, second: int, size_bytes: int) -> int:
    """Returns the CRC-32C of two pieces that stand one after another, from those of each.

    Much quicker than reading half a megabyte once more for the file's CRC.

    Args:
      first, second: the CRC-32C of each piece.
      size_bytes: of the second piece.

    Source: zlib's crc32_combine; a CRC is linear, and zeros behind a piece multiply its CRC
    by a matrix over GF(2), whose powers for 1, 2, 4, … bytes are at hand.
    """
    matrices = _zero_matrices()
    for bit in range(size_bytes.bit_length()):
        if size_bytes >> bit & 1:
            first = _multiply(matrices[bit], first)
    return first ^ second


def _multiply(matrix: list[list[int]], crc: int) -> int:
    """Multiplies by a matrix that is given as four tables, one for each byte of the CRC."""
    low, second, third, high = matrix
    return low[crc & 0xFF] ^ second[crc >> 8 & 0xFF] ^ third[crc >> 16 & 0xFF] ^ high[crc >> 24]


def _tables(columns: list[int]) -> list[list[int]]:
    """Turns a matrix's 32 columns into the four tables of `_multiply`."""
    tables = []
    for byte in range(4):
        table = [0]
        for column in columns[8 * byte : 8 * byte + 8]:
            table += [value ^ column for value in table]
        tables.append(table)
    return tables


@cache
def _zero_matrices() -> list[list[list[int]]]:
    """Returns the matrices that append 1, 2, 4, … 2**47 zero bytes."""
    columns = [_POLYNOMIAL, *(1 << bit for bit in range(31))]  # one zero bit: a shift
    for _ in range(3):  # squared three times: eight zero bits
        tables = _tables(columns)
        columns = [_multiply(tables, column) for column in columns]
    matrices = []
    for _ in range(48):
        tables = _tables(columns)
        matrices.append(tables)
        columns = [_multiply(tables, column) for column in columns]
    return matrices


def mask_crc(crc: int) -> int:
    """Returns the CRC as TFRecord files store it (so that a CRC of CRCs stays meaningful)."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def format_header(size: int) -> bytes:
    """Returns the 12 bytes before a record of `size` bytes."""
    length = _LENGTH.pack(size)
    return length + _CRC.pack(mask_crc(google_crc32c.value(length)))


def format_footer(crc: int) -> bytes:
    """Returns the 4 bytes after a record whose data has this (unmasked) CRC-32C."""
    return _CRC.pack(mask_crc(crc))


def read_frame(file: BinaryIO, offset: int, *, limit: int) -> Frame | None:
    """Reads and checks the frame at the file's position.

    Args:
      file: stands at `offset`.
      offset: where the frame begins.
      limit: the file's size; a length that reaches behind it is reported, not allocated.

    Returns:
      None at the end of the file.

    Raises:
      FrameError: with the reason.
    """
    header = file.read(HEADER_BYTES)
    if not header:
        return None
    size = _check_header(header, offset, limit)
    data = file.read(size)
    footer = file.read(FOOTER_BYTES)
    if len(data) < size or len(footer) < FOOTER_BYTES:
        raise FrameError(offset, f"cut off: {size} bytes of data and 4 of its CRC were expected")
    crc: int = google_crc32c.value(data)
    if footer != format_footer(crc):
        raise FrameError(offset, f"the CRC of the data ({size} bytes) is wrong")
    return Frame(offset, data, crc)


def read_frames(file: BinaryIO, *, limit: int) -> Iterator[Frame]:
    """Yields the frames of a file that stands at its beginning; see `read_frame`."""
    offset = 0
    while frame := read_frame(file, offset, limit=limit):
        yield frame
        offset += len(frame.data) + FRAME_BYTES


def _check_header(header: bytes, offset: int, limit: int) -> int:
    if len(header) < HEADER_BYTES:
        raise FrameError(offset, f"cut off: {len(header)} bytes where a header of 12 was expected")
    size: int = _LENGTH.unpack_from(header)[0]
    if header != format_header(size):
        raise FrameError(offset, "the CRC of the length is wrong")
    if offset + size + FRAME_BYTES > limit:
        raise FrameError(
            offset, f"cut off: {size} bytes of data were expected, the file ends at {limit}"
        )
    return size
