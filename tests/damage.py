"""A seeded generator of damaged files: what nightly jobs find in real folders, and worse."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pictures

HARMLESS = frozenset[str]()
BROKEN = frozenset(["truncated", "corrupt", "not_an_image"])
_ANY_HEADER = BROKEN | {"unsupported_mode", "too_many_pixels", "multi_frame", "size_mismatch"}
_MASK_ONLY = frozenset(["lossy_mask", "mask_not_indexed"])


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged file.

    Attributes:
      name: what was done, fit for a file's name.
      data: the file's bytes.
      codes: one of these is the reject code, whether the file stands for an image or a mask.
      may_pass: True where the damage can go unnoticed by the format (a bit of a JPEG).
    """

    name: str
    data: bytes
    codes: frozenset[str]
    may_pass: bool = False


def damages(data: bytes, seed: int, *, mask: bool) -> Iterator[Damage]:
    """Yields files in place of the JPEG or PNG `data`, each damaged in another way.

    The same arguments give the same files. With the undamaged partner (the mask for an
    image, the image for a mask) each is a reject of one of its codes, unless it may pass.

    Args:
      data: a whole file, of at least 100 bytes.
      seed: of the places where bytes are flipped.
      mask: whether `data` is a mask.
    """
    yield Damage("empty", b"", frozenset(["empty_file"]))
    yield from truncate(data)
    yield from flip(data, seed)
    yield from swap(seed, mask=mask)
    yield from declare()


def truncate(data: bytes) -> Iterator[Damage]:
    """Cuts the file off at every tenth of it, and one byte before its end."""
    for tenth in range(1, 10):
        cut = data[: len(data) * tenth // 10]
        yield Damage(f"cut-at-{tenth}0-percent", cut, frozenset(["truncated"]))
    yield Damage("cut-before-last-byte", data[:-1], frozenset(["truncated"]))
    yield Damage("cut-in-signature", data[:2], frozenset(["not_an_image"]))


def flip(data: bytes, seed: int, times: int = 20) -> Iterator[Damage]:
    """Flips one bit at each of `times` places. A PNG has CRCs, so none passes there."""
    chance = random.Random(seed)
    png = data.startswith(b"\x89PNG")
    for _ in range(times):
        at, bit = chance.randrange(len(data)), chance.randrange(8)
        flipped = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        codes = BROKEN if png else _ANY_HEADER | _MASK_ONLY
        yield Damage(f"bit-{bit}-of-byte-{at}", flipped, codes, may_pass=not png)
    for at in (len(data) // 3, len(data) // 2):
        zeros = data[:at] + bytes(64) + data[at + 64 :]
        yield Damage(f"64-zeros-at-{at}", zeros, BROKEN, may_pass=not png or zeros == data)


def swap(seed: int, *, mask: bool) -> Iterator[Damage]:
    """Puts other things in the file's place."""
    yield Damage("text", b"<html><body>404 Not Found</body></html>", frozenset(["not_an_image"]))
    yield Damage("zip", b"PK\x03\x04" + bytes(200), frozenset(["not_an_image"]))
    yield Damage("zeros", bytes(5000), frozenset(["not_an_image"]))
    yield Damage("noise", random.Random(seed).randbytes(5000), frozenset(["not_an_image"]))
    small = pictures.draw_rgb(16, 16, seed)
    frames = pictures.save(
        small,
        "GIF",
        save_all=True,
        append_images=[pictures.Image.fromarray(255 - small)],
    )
    yield Damage("animation", frames, frozenset(["multi_frame"]))
    deep = pictures.save(small[:, :, 0].astype(np.uint16) * 200, "PNG")
    yield Damage("16-bit", deep, frozenset(["unsupported_mode"]))
    if mask:
        yield Damage("jpeg-mask", pictures.save(small, "JPEG"), frozenset(["lossy_mask"]))
        yield Damage("rgb-mask", pictures.save(small, "PNG"), frozenset(["mask_not_indexed"]))
        grey = pictures.write_png(pictures.draw_ids(16, 16, (0, 1, 15)), bits=4)
        yield Damage("4-bit-grey-mask", grey, frozenset(["unsupported_mode"]))
    else:
        size = pictures.save(pictures.draw_rgb(3, 5), "PNG")
        yield Damage("other-size", size, frozenset(["size_mismatch"]))


def declare() -> Iterator[Damage]:
    """Headers that promise what would cost gigabytes, or what can't be."""
    ids = pictures.draw_ids(8, 8, (0, 1))
    bomb = frozenset(["too_many_pixels"])
    yield Damage("png-bomb", pictures.write_png(ids, size=(60000, 60000)), bomb)
    yield Damage("gif-bomb", pictures.write_gif((65535, 65535), (65535, 65535), dispose=2), bomb)
    yield Damage("bmp-bomb", pictures.write_bmp(bytes(8), (60000, 60000), 24, []), bomb)
    yield Damage("webp-bomb", pictures.write_webp_header((16383, 16383)), bomb)
    canvas = pictures.write_webp_header((16, 16), canvas=(1 << 16, 1 << 15))
    yield Damage("webp-canvas-bomb", canvas, bomb)
    none = pictures.write_png(ids, size=(0, 8))
    yield Damage("png-of-0-pixels", none, frozenset(["corrupt"]))
    short = pictures.write_png(ids[:5], size=(8, 8))
    yield Damage("png-rows-lack", short, frozenset(["truncated"]))


def turn_by_exif(rgb: np.ndarray) -> Damage:
    """The JPEG of an image (height × width × 3) as a camera held upright stores it."""
    lying = np.rot90(rgb)
    jpeg = pictures.write_rotated_jpeg(lying, orientation=6)
    return Damage("turned-by-exif", jpeg, frozenset(["size_mismatch"]))
