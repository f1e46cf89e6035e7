"""The files that pictures come in, walked without decoding: signatures, CRCs, sizes, frames.

Only what Pillow does not check (the CRC of IDAT, rows that lack) or what must be known before
Pillow opens a file (for an animation it fills a whole picture on opening).
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NoReturn

from transforms.core.errors import DataError

_SIGNATURES: dict[str, tuple[bytes, ...]] = {
    "jpeg": (b"\xff\xd8\xff",),
    "png": (b"\x89PNG\r\n\x1a\n",),
    "bmp": (b"BM",),
    "gif": (b"GIF87a", b"GIF89a"),
    # As Pillow: both byte orders, each also with its mark turned round, and BigTIFF.
    "tiff": (b"II*\0", b"MM\0*", b"MM*\0", b"II\0*", b"MM\0+", b"II+\0"),
    "webp": (b"RIFF",),
    "ppm": (b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"Pf"),
}
_BMP_HEADER_SIZES = (12, 40, 52, 56, 64, 108, 124)
# PNG 3rd ed. 11.2.1: channels and bit depths of each colour type.
_PNG_TYPES = {
    0: (1, (1, 2, 4, 8, 16)),
    2: (3, (8, 16)),
    3: (1, (1, 2, 4, 8)),
    4: (2, (8, 16)),
    6: (4, (8, 16)),
}
# PNG 3rd ed. 8.1: x and y of the first pixel of each Adam7 pass, and its steps.
_ADAM7 = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
_GIF_BLOCK = re.compile(b"[!,;]")  # introduces an extension, a frame, the trailer
_GIF_JUNK_BYTES = 1 << 16  # between blocks, in all: Pillow passes over them one by one
# What is wrong and what to do, for each code that a damaged file can have.
_FAULTS = {
    "truncated": ("ends too early", "Fetch or export it again, or drop the row."),
    "corrupt": ("is damaged", "Fetch or export it again, or drop the row."),
    "unsupported_mode": ("has a pixel format that is not read", "Convert it to 8-bit RGB."),
}


@dataclass(frozen=True, slots=True)
class Header:
    """What a file declares: width and height in pixels, and frames (2 stands for more)."""

    width: int
    height: int
    frames: int = 1


def refuse_damaged(code: str, found: str, kind: str, name: str) -> NoReturn:
    """Raises a DataError of a file that is of a known format, but not whole.

    Args:
      code: truncated, corrupt or unsupported_mode.
      found: what was found; the same words each time.
      kind: the format, as `find_format` has it.
      name: the file, as the index names it.
    """
    fault, advice = _FAULTS[code]
    raise DataError(
        code,
        f"{name} is a {kind.upper()} file that {fault} ({found}); expected a whole picture of "
        f"at most 8 bits a sample. {advice}",
        path=name,
    )


def find_format(data: bytes, name: str) -> str:
    """Tells the format by the signature alone, because names lie.

    Args:
      data: at least the first 18 bytes of the file.
      name: the file, as the index names it.

    Returns:
      jpeg, png, bmp, gif, tiff, webp or ppm.

    Raises:
      DataError: empty_file, not_an_image.
    """
    for kind, signatures in _SIGNATURES.items():
        if data.startswith(signatures) and _is_plausible(kind, data):
            return kind
    if not data:
        message = f"{name} has 0 bytes; expected a picture. Fetch or export it again."
        raise DataError("empty_file", message, path=name)
    raise DataError(
        "not_an_image",
        f"{name} begins with {data[:8]!r}, which no format that is opened begins with; expected "
        "JPEG, PNG, BMP, GIF, TIFF, WebP or PPM. Convert the file, or drop the row.",
        path=name,
    )


def _is_plausible(kind: str, data: bytes) -> bool:
    """The second look that signatures of two letters need, and RIFF, which holds much else."""
    if kind == "bmp":
        return int.from_bytes(data[14:18], "little") in _BMP_HEADER_SIZES
    if kind == "webp":
        return data[8:12] == b"WEBP"
    return kind != "ppm" or data[2:3].isspace()


def read_png_header(data: bytes, name: str) -> Header:
    """Reads width and height from IHDR, the first 29 bytes (PNG 3rd ed. 11.2.1).

    Raises:
      DataError: truncated, corrupt (values that the standard does not know).
    """
    if len(data) < 29:
        refuse_damaged("truncated", "it ends within IHDR", "png", name)
    width, height, bits, colour_type, method, filters, interlace = _unpack_ihdr(data)
    known = bits in _PNG_TYPES.get(colour_type, (0, ()))[1]
    if data[8:16] != b"\0\0\0\rIHDR" or method or filters or interlace > 1 or not known:
        refuse_damaged("corrupt", "its IHDR holds impossible values", "png", name)
    if not (0 < width < 1 << 31 and 0 < height < 1 << 31):
        refuse_damaged("corrupt", f"it declares {width}×{height} pixels", "png", name)
    return Header(width, height)


def _unpack_ihdr(data: bytes) -> tuple[int, int, int, int, int, int, int]:
    width, height = struct.unpack_from(">II", data, 16)
    return width, height, data[24], data[25], data[26], data[27], data[28]


def check_png(data: bytes, name: str) -> Header:
    """Checks the header, every chunk's CRC, and that nothing lacks up to IEND.

    Pillow passes over the CRC of IDAT and of all that follows, so that a flipped bit could
    become other pixels.

    Raises:
      DataError: truncated, corrupt.
    """
    header, view, kinds, frames = read_png_header(data, name), memoryview(data), set(), 1
    for kind, start, end in list_png_chunks(data, name):
        if zlib.crc32(view[start - 4 : end]) != int.from_bytes(view[end : end + 4], "big"):
            refuse_damaged("corrupt", f"wrong CRC of chunk {kind!r}", "png", name)
        if kind == b"acTL" and data[start : start + 4] != b"\0\0\0\1":  # 11.3.6.1
            frames = 2
        kinds.add(kind)
    for kind in [b"IDAT"] + [b"PLTE"] * (data[25] == 3):
        if kind not in kinds:
            refuse_damaged("corrupt", f"it has no chunk {kind!r}", "png", name)
    return Header(header.width, header.height, frames)


def list_png_chunks(data: bytes, name: str) -> Iterator[tuple[bytes, int, int]]:
    """Yields each chunk's type, start and end of its data, up to and with IEND.

    Raises:
      DataError: truncated.
    """
    kind, end = b"", 4
    while kind != b"IEND":
        start = end + 12
        end = start + int.from_bytes(data[start - 8 : start - 4], "big")
        kind = data[start - 4 : start]
        if end + 4 > len(data):
            refuse_damaged("truncated", "the file ends before its chunk IEND", "png", name)
        yield kind, start, end


def check_png_rows(data: bytes, name: str) -> None:
    """Checks that IDAT holds all rows, by decompressing it.

    Raises:
      DataError: truncated.
    """
    view, expected = memoryview(data), _count_png_bytes(data)
    chunks = [view[at:to] for kind, at, to in list_png_chunks(data, name) if kind == b"IDAT"]
    try:
        found = len(zlib.decompressobj().decompress(b"".join(chunks), expected))
    except zlib.error as error:
        refuse_damaged("corrupt", f"zlib says: {error}", "png", name)
    if found < expected:
        words = f"IDAT holds {found} bytes of {expected}"
        refuse_damaged("truncated", words, "png", name)


def _count_png_bytes(data: bytes) -> int:
    """Bytes of the decompressed stream: every row of every pass, and its filter (7.2, 8.1)."""
    width, height, bits, colour_type, _, _, interlace = _unpack_ihdr(data)
    total, pixel_bits = 0, bits * _PNG_TYPES[colour_type][0]
    for x, y, step_x, step_y in _ADAM7 if interlace else ((0, 0, 1, 1),):
        columns, rows = -((x - width) // step_x), -((y - height) // step_y)
        if columns > 0:
            total += max(rows, 0) * (1 + (columns * pixel_bits + 7) // 8)
    return total


def make_greyscale_png(data: bytes) -> bytes:
    """Makes an 8-bit palette PNG greyscale: colour type 0; only IHDR, IDAT and IEND are kept.

    Indexes and grey levels of 8 bits are stored alike (PNG 3rd ed. 7.2), so nothing is
    compressed anew. A palette's transparency has no meaning for class ids.
    """
    view = memoryview(data)
    header = b"IHDR" + data[16:25] + b"\0" + data[26:29]
    parts: list[bytes | memoryview] = [data[:12], header, struct.pack(">I", zlib.crc32(header))]
    for kind, start, end in list_png_chunks(data, "the mask"):
        if kind in (b"IDAT", b"IEND"):
            parts.append(view[start - 8 : end + 4])
    return b"".join(parts)


def check_jpeg_end(data: bytes, name: str) -> None:
    """Refuses a JPEG without its end marker: Pillow may decode it, TensorFlow does not.

    Source: ITU T.81, B.1.1.3; segments before the first scan (a thumbnail in EXIF, say) may
    hold an end marker of their own, and are stepped over.
    """
    if data.endswith(b"\xff\xd9"):
        return
    at = 2
    while data[at : at + 1] == b"\xff":
        if data[at + 1 : at + 2] == b"\xda" or at + 3 > len(data):
            break
        filled = data[at + 1 : at + 2] == b"\xff"
        at += 1 if filled else 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    if data.find(b"\xff\xd9", at) < 0:
        refuse_damaged("truncated", "its end marker is missing", "jpeg", name)


def check_gif(data: bytes, name: str) -> Header:
    """Reads the size (of screen and first frame together, as Pillow has it) and the frames.

    Raises:
      DataError: truncated, if the file ends before its trailer (GIF 89a, 27) or second frame;
        corrupt, if much stands between its blocks.
    """
    try:
        width, height = struct.unpack_from("<HH", data, 6)
        frames = list(islice(_list_gif_frames(data, name), 2))
    except (IndexError, struct.error):
        refuse_damaged("truncated", "the file ends before its trailer", "gif", name)
    right, bottom = frames[0] if frames else (0, 0)
    return Header(max(width, right), max(height, bottom), len(frames))


def read_gif_header(head: bytes, name: str) -> Header:
    """Reads the size, as `check_gif`, from the file's first bytes.

    Raises:
      DataError: truncated, corrupt.
    """
    if len(head) < 13:
        refuse_damaged("truncated", "it ends within its header", "gif", name)
    width, height = struct.unpack_from("<HH", head, 6)
    try:
        right, bottom = next(_list_gif_frames(head, name), (0, 0))
    except (IndexError, struct.error):  # the first frame begins farther behind
        return Header(width, height)
    return Header(max(width, right), max(height, bottom))


def _list_gif_frames(data: bytes, name: str) -> Iterator[tuple[int, int]]:
    """Yields the right and bottom edge of each frame, up to the trailer."""
    at, junk = 13 + _count_palette_bytes(data[10]), 0
    while data[at] != 0x3B:
        if data[at] == 0x2C:  # an image descriptor (20)
            x, y, columns, rows, flags = struct.unpack_from("<HHHHB", data, at + 1)
            yield x + columns, y + rows
            at = _skip_sub_blocks(data, at + 11 + _count_palette_bytes(flags))
        elif data[at] == 0x21:  # an extension (23 to 26)
            at = _skip_sub_blocks(data, at + 2)
        else:  # as Pillow: passed over
            found = _GIF_BLOCK.search(data, at, at + _GIF_JUNK_BYTES + 1)
            behind = found.start() if found else at + _GIF_JUNK_BYTES + 1
            junk, at = junk + behind - at, behind
            if junk > _GIF_JUNK_BYTES and at < len(data):
                words = f"more than {_GIF_JUNK_BYTES} bytes stand between its blocks"
                refuse_damaged("corrupt", words, "gif", name)


def _count_palette_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 128 else 0


def _skip_sub_blocks(data: bytes, at: int) -> int:
    while data[at]:
        at += 1 + data[at]
    return at + 1


def check_webp(data: bytes, name: str) -> Header:
    """Reads the size, and checks that the file is as long as it says (RFC 9649, 2.4 to 2.7).

    On opening, libwebp asks for two canvases of that size.

    Raises:
      DataError: truncated.
    """
    if len(data) < 30 or int.from_bytes(data[4:8], "little") + 8 > len(data):
        refuse_damaged("truncated", "its RIFF header declares more bytes", "webp", name)
    return read_webp_header(data, name)


def read_webp_header(data: bytes, name: str) -> Header:
    """Reads the size from the file's first 30 bytes.

    Raises:
      DataError: truncated.
    """
    if len(data) < 30:
        refuse_damaged("truncated", "it ends within its header", "webp", name)
    if data[12:16] == b"VP8X":
        canvas = int.from_bytes(data[24:30], "little")
        return Header((canvas & 0xFFFFFF) + 1, (canvas >> 24) + 1)
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return Header((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    width, height = struct.unpack_from("<HH", data, 26)  # VP8: RFC 6386, 9.1
    return Header(width & 0x3FFF, height & 0x3FFF)


def is_lossless_webp(data: bytes) -> bool:
    """Tells whether a still WebP's picture is a chunk VP8L (RFC 9649, 2.3 to 2.6)."""
    at = 12
    while at + 8 <= len(data):
        if data[at : at + 4] == b"VP8L":
            return True
        size_bytes = int.from_bytes(data[at + 4 : at + 8], "little")
        at += 8 + size_bytes + size_bytes % 2
    return False
