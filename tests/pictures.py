"""Pictures for tests, of any format and pixel layout; those Pillow can't write by hand."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from PIL import Image

ADAM7 = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
VOC_COLOURS = bytes([0, 0, 0, 128, 0, 0, 0, 128, 0, 128, 128, 0]) + bytes(range(12, 252)) * 3
"""244 colours, none of them the grey of its own index but the first."""


def draw_rgb(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Height × width × 3 uint8, smooth with some noise."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width]
    smooth = np.stack([rows * 3, columns * 2, rows + columns], axis=-1) % 200
    return (smooth + rng.integers(0, 30, (height, width, 3))).astype(np.uint8)


def draw_ids(height: int, width: int, ids: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Height × width uint8 of blocks of the given ids, all of which occur."""
    rng = np.random.default_rng(seed)
    blocks = rng.choice(ids, (-(-height // 4), -(-width // 4)))
    drawn = np.kron(blocks, np.ones((4, 4)))[:height, :width].astype(np.uint8)
    drawn[0, : len(ids)] = ids
    return drawn


def save(array: np.ndarray, form: str, mode: str | None = None, **options: object) -> bytes:
    """Saves through Pillow; a palette is put to mode P."""
    picture = Image.fromarray(array)
    if mode == "P":
        picture = Image.frombytes("P", picture.size, array.tobytes())
        picture.putpalette(VOC_COLOURS)
    elif mode and mode != picture.mode:
        picture = picture.convert(mode)
    out = io.BytesIO()
    picture.save(out, form, **options)
    return out.getvalue()


def write_chunk(kind: bytes, data: bytes) -> bytes:
    """A PNG chunk with its length and CRC."""
    crc = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)


def write_png(
    samples: np.ndarray,
    *,
    bits: int = 8,
    colour_type: int = 0,
    palette: bytes = b"",
    interlace: int = 0,
    before: bytes = b"",
    size: tuple[int, int] | None = None,
    split: int = 1 << 30,
) -> bytes:
    """Encodes samples (height × width, or × channels) of any bit depth, filter 0.

    Args:
      before: chunks that stand before IDAT.
      size: another (height, width) for the header.
      split: bytes of an IDAT at most.
    """
    if samples.ndim == 2:
        samples = samples[:, :, None]
    height, width = size or samples.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, bits, colour_type, 0, 0, interlace)
    passes = ADAM7 if interlace else ((0, 0, 1, 1),)
    raw = b"".join(_pack_rows(samples[y::dy, x::dx], bits) for x, y, dx, dy in passes)
    stream = zlib.compress(raw, 9)
    chunks = [write_chunk(b"IHDR", header), before]
    if colour_type == 3:
        chunks.append(write_chunk(b"PLTE", palette or VOC_COLOURS[: 3 << bits]))
    for at in range(0, len(stream), split):
        chunks.append(write_chunk(b"IDAT", stream[at : at + split]))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks) + write_chunk(b"IEND", b"")


def _pack_rows(samples: np.ndarray, bits: int) -> bytes:
    if not samples.size:
        return b""
    rows = samples.reshape(samples.shape[0], -1).astype(np.uint32)
    places = np.arange(bits - 1, -1, -1, dtype=np.uint32)
    unpacked = (rows[:, :, None] >> places & 1).reshape(rows.shape[0], -1).astype(np.uint8)
    return b"".join(b"\0" + np.packbits(row).tobytes() for row in unpacked)


def write_apng(frames: int, dispose: int = 0, size: tuple[int, int] = (8, 8)) -> bytes:
    """An APNG that declares this many frames of which the first is there."""
    height, width = size
    control = struct.pack(">IIIIIHHBB", 0, width, height, 0, 0, 1, 10, dispose, 0)
    before = write_chunk(b"acTL", struct.pack(">II", frames, 0)) + write_chunk(b"fcTL", control)
    return write_png(draw_ids(8, 8, (1, 2)), before=before, size=size)


def write_bmp(rows: bytes, size: tuple[int, int], bits: int, palette: list[int], colours: int = 0):
    """A BMP of packed rows (bottom up, padded to 4 bytes) with a palette of 0xRRGGBB."""
    height, width = size
    colour_table = b"".join(struct.pack("<I", colour) for colour in palette)
    offset = 54 + len(colour_table)
    info = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, 0, len(rows), 0, 0, colours, 0)
    file = b"BM" + struct.pack("<IHHI", offset + len(rows), 0, 0, offset)
    return file + info + colour_table + rows


def write_tiff(
    samples: bytes, size: tuple[int, int], bits: tuple[int, ...], photometric: int, **tags: int
) -> bytes:
    """A one-strip, uncompressed, little-endian TIFF. `tags` are t<number>=value."""
    height, width = size
    entries = {256: width, 257: height, 259: 1, 262: photometric, 277: len(bits), 278: height}
    entries |= {279: len(samples)} | {int(key[1:]): value for key, value in tags.items()}
    bits_at = 8 + 2 + 12 * (len(entries) + 2) + 4
    entries[273] = bits_at + 2 * len(bits)
    packed = {tag: struct.pack("<HHII", tag, 4, 1, value) for tag, value in entries.items()}
    inline = struct.pack("<HH", bits[0], 0) if len(bits) == 1 else struct.pack("<I", bits_at)
    packed[258] = struct.pack("<HHI", 258, 3, len(bits)) + inline
    directory = struct.pack("<H", len(packed)) + b"".join(packed[tag] for tag in sorted(packed))
    tail = struct.pack(f"<{len(bits)}H", *bits) + samples
    return b"II*\0\x08\0\0\0" + directory + b"\0\0\0\0" + tail


def write_gif(size: tuple[int, int], frame: tuple[int, int], dispose: int = 0) -> bytes:
    """A GIF of one frame whose sizes (height, width) are only declared."""
    screen = b"GIF89a" + struct.pack("<HHBBB", size[1], size[0], 0x80, 0, 0) + bytes(6)
    control = b"!\xf9\x04" + bytes([dispose << 2 | 1]) + b"\0\0\0\0"
    descriptor = b"," + struct.pack("<HHHHB", 0, 0, frame[1], frame[0], 0)
    return screen + control + descriptor + b"\x02\x02\x4c\x01\0;"


def write_webp_header(size: tuple[int, int], canvas: tuple[int, int] | None = None) -> bytes:
    """A lossless WebP that declares (height, width) and holds nothing (RFC 9649, 2.7, 3.4)."""
    bits = struct.pack("<I", size[1] - 1 | size[0] - 1 << 14)
    chunks = b"VP8L" + struct.pack("<I", 20) + b"\x2f" + bits + bytes(15)
    if canvas:
        sizes = (canvas[1] - 1 | canvas[0] - 1 << 24).to_bytes(6, "little")
        chunks = b"VP8X\x0a\0\0\0\0\0\0\0" + sizes + chunks
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WEBP" + chunks


def write_rotated_jpeg(array: np.ndarray, orientation: int = 6) -> bytes:
    """A JPEG with an EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return save(array, "JPEG", quality=95, exif=exif.tobytes())
