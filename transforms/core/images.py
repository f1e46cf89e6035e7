"""Pictures and masks: bytes of a file in, pixels or class ids out.

The only module that imports Pillow, but for the verifier's `comparing`. What is opened,
converted and refused is the design's section "Pictures and masks"; docs/reject-codes.md says
what a user does about each refusal.
All functions may be called from several threads at once, and the slow parts (decode,
convert, pack, histogram, CRC) let go of the interpreter lock.
"""

from __future__ import annotations

import io
import logging
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, NoReturn, TypeVar

import PIL
from PIL import Image as PilImage
from PIL import ImageFile, features
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.PpmImagePlugin import PpmImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from transforms.core import containers
from transforms.core.containers import Header
from transforms.core.errors import DataError

# Our limit is --max-pixels, judged from the header; Pillow's own (a warning, then an error)
# would only stand in its way.
PilImage.MAX_IMAGE_PIXELS = None
# Pillow warns and logs about odd metadata (EXIF, TIFF tags), which no pixel depends on. What
# matters is raised. `catch_warnings` around each call would not be thread-safe.
warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
logging.getLogger("PIL").addHandler(logging.NullHandler())

# The plugins' own classes, not Image.open: the signature has been looked at already, and
# Image.open hides why a header is refused (its message is a memory address). A MPO is a JPEG
# followed by more of them: the JPEG class reads the first picture and looks for no other.
_OPENERS: dict[str, Callable[[BinaryIO], ImageFile.ImageFile]] = {
    "jpeg": JpegImageFile,
    "png": PngImageFile,
    "bmp": BmpImageFile,
    "gif": GifImageFile,
    "tiff": TiffImageFile,
    "webp": WebPImageFile,
    "ppm": PpmImageFile,
}
_COLOUR_MODES = frozenset(["RGB", "LA", "PA", "RGBA", "CMYK", "YCbCr"])
_SINGLE_MODES = frozenset(["1", "L", "P"])
_LOSSY_TIFF = frozenset(["jpeg", "tiff_jpeg", "webp"])
_PNG_LEVEL = 6
_HEAD_BYTES = 1 << 16
_FAR_BYTES = 1 << 20  # a JPEG's EXIF, thumbnail and colour profile may be longer than a head
_SAVE_MASK = "Save it as a palette or 8-bit grey PNG."
_LOSSY = (
    "Go back to the lossless original (converting it to PNG keeps the noise). If this is no mask "
    "but a picture, the columns have changed places."
)
_TURN = (
    "The sizes agree once the image's EXIF orientation is applied, which pairshard does not: "
    "save the image turned and without the tag (exiftran -ai, or Pillow's ImageOps.exif_transpose)."
)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Image:
    """A decoded picture.

    Attributes:
      height: in pixels.
      width: in pixels.
      pixels: height × width × 3 uint8, RGB, row-major; b"" if decoded with pixels=False.
      format: what the bytes are, whatever the name says: jpeg, png, bmp, gif, tiff, webp, ppm.
    """

    height: int
    width: int
    pixels: bytes
    format: str


@dataclass(frozen=True, slots=True)
class Mask:
    """A decoded mask.

    Attributes:
      height: in pixels.
      width: in pixels.
      ids: height × width uint8 class ids, row-major; b"" if decoded with ids=False.
      pixel_counts: (class id, number of pixels) of the ids present, ascending.
      format: as `Image.format`.
    """

    height: int
    width: int
    ids: bytes
    pixel_counts: tuple[tuple[int, int], ...]
    format: str


def decode_image(
    data: bytes,
    name: str,
    *,
    max_pixels: int,
    pixels: bool = True,
    admit: Callable[[int], None] = lambda size_bytes: None,
) -> Image:
    """Decodes a picture to 8-bit RGB, as `np.array(PIL.Image.open(path).convert("RGB"))`.

    Alpha is dropped without blending; no ICC profile is applied and no EXIF orientation (but
    a TIFF's, which Pillow applies itself).

    Args:
      data: the file's bytes.
      name: the file, as the index names it; for messages.
      max_pixels: the most that height × width may be.
      pixels: False decodes the whole stream just so, but makes no pixels of it.
      admit: called with the bytes that pixels will take, before decoding; it may wait.

    Raises:
      DataError: empty_file, not_an_image, truncated, corrupt, unsupported_mode,
        too_many_pixels, multi_frame.
    """
    picture, kind = _open(data, name, max_pixels)
    _check_image_mode(picture, kind, data, name)
    width, height = picture.size
    if not pixels and kind == "jpeg":
        # Reads the whole compressed stream as well, in three quarters of the time: only the
        # inverse transform, which can't fail, is made at an eighth of the scale.
        picture.draft(None, (max(1, width // 8), max(1, height // 8)))
    admit(picture.width * picture.height * (4 + 3 * pixels))  # Pillow's own, and packed
    _load(picture, kind, data, name)
    packed = _pack(_convert_to_rgb(picture, kind, name)) if pixels else b""
    return Image(height, width, packed, kind)


def decode_mask(
    data: bytes,
    name: str,
    *,
    max_pixels: int,
    ids: bool = True,
    admit: Callable[[int], None] = lambda size_bytes: None,
) -> Mask:
    """Decodes a mask to class ids, as `np.array(PIL.Image.open(path))`.

    They are palette indexes or levels of 8-bit grey, never colours.

    Args:
      data: the file's bytes.
      name: the file, as the index names it; for messages.
      max_pixels: the most that height × width may be.
      ids: False decodes and counts just as fully, but packs no ids.
      admit: as `decode_image`.

    Raises:
      DataError: as `decode_image`, and lossy_mask, mask_not_indexed.
    """
    picture, kind = _open(data, name, max_pixels)
    _check_mask_mode(picture, kind, data, name)
    admit(picture.width * picture.height * (1 + ids))
    _load(picture, kind, data, name)
    # At 480×360, Pillow's histogram takes 0.11 ms, without the interpreter lock;
    # np.bincount takes 0.28 ms, most of it with the lock.
    counts = tuple((i, n) for i, n in enumerate(picture.histogram()) if n)
    return Mask(picture.height, picture.width, _pack(picture) if ids else b"", counts, kind)


def encode_mask_png(data: bytes, mask: Mask) -> bytes:
    """Writes a mask as 8-bit greyscale PNG, whose levels are the class ids.

    TensorFlow decodes a palette PNG to grey levels of the colours (tensorflow#28256), so a
    palette does not do. Of an 8-bit palette PNG only the header is rewritten; 8-bit greyscale
    PNG comes back as it is; all else is compressed anew.

    Args:
      data: the file's bytes that `mask` was decoded from.
      mask: its ids may be b"".
    """
    if mask.format == "png" and data[24] == 8:
        return data if data[25] == 0 else containers.make_greyscale_png(data)
    limit = mask.height * mask.width
    ids = mask.ids or decode_mask(data, "the mask", max_pixels=limit).ids
    # As a palette picture, because for those Pillow uses filter 0 alone.
    picture = PilImage.frombytes("P", (mask.width, mask.height), ids)
    out = io.BytesIO()
    picture.save(out, "PNG", bits=8, compress_level=_PNG_LEVEL)
    return containers.make_greyscale_png(out.getvalue())


def read_size(source: bytes | BinaryIO, name: str = "the picture") -> tuple[int, int]:
    """Reads (height, width) from a picture's header; no pixel is decoded.

    Of a TIFF, whose header may stand anywhere, Pillow reads the tags; of all else the
    first `_HEAD_BYTES` are read, and `_FAR_BYTES` more where Pillow finds no size in them. A GIF
    whose first frame begins behind them has its screen's size.

    Args:
      source: the file's bytes, or the file, open for reading in binary.
      name: for messages.

    Raises:
      DataError: empty_file, not_an_image, truncated, corrupt, unsupported_mode.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    kind = containers.find_format(head, name)
    if kind == "png":
        found = containers.read_png_header(head, name)
    elif kind == "gif":
        found = containers.read_gif_header(head, name)
    elif kind == "webp":
        found = containers.read_webp_header(head, name)
    elif kind == "tiff":
        found = _read_by_pillow(file, kind, name)
    else:
        try:
            found = _read_by_pillow(io.BytesIO(head), kind, name)
        except DataError:
            more = head + file.read(_FAR_BYTES)
            found = _read_by_pillow(io.BytesIO(more), kind, name)
    return found.height, found.width


def _read_by_pillow(file: BinaryIO, kind: str, name: str) -> Header:
    file.seek(0)
    return Header(*_ask_pillow(lambda: _OPENERS[kind](file), kind, name).size)


def check_classes(mask: Mask, name: str, *, num_classes: int | None, ignore_id: int) -> None:
    """Checks that every id is a class (0 to num_classes - 1) or the ignore id.

    Args:
      mask: the mask.
      name: its file, as the index names it.
      num_classes: None takes any id.
      ignore_id: the id of pixels that belong to no class.

    Raises:
      DataError: class_id_out_of_range, with each such id and its number of pixels.
    """
    if num_classes is None:
        return
    bad = [(i, n) for i, n in mask.pixel_counts if i >= num_classes and i != ignore_id]
    if not bad:
        return
    found = ", ".join(f"{i} ({n} pixel{'s' if n > 1 else ''})" for i, n in bad)
    raise DataError(
        "class_id_out_of_range",
        f"{name} holds class id{'s' if len(bad) > 1 else ''} {found}; expected 0 to "
        f"{num_classes - 1}, or {ignore_id} for pixels to ignore. Mend the mask, or give the "
        "right --classes or --ignore-id.",
        path=name,
    )


def check_sizes(
    image: Image, mask: Mask, image_data: bytes, image_name: str, mask_name: str
) -> None:
    """Checks that image and mask have the same height and width.

    Raises:
      DataError: size_mismatch; it says so where the sizes agree once the image is turned as
        its EXIF orientation says (cameras store portraits lying).
    """
    if (image.height, image.width) == (mask.height, mask.width):
        return
    path, advice = mask_name, "Pair the mask with its own image, or make one of the right size."
    if (image.height, image.width) == (mask.width, mask.height) and _is_lying(image, image_data):
        path, advice = image_name, _TURN
    raise DataError(
        "size_mismatch",
        f"{image_name} is {image.width}×{image.height} and its mask {mask_name} is "
        f"{mask.width}×{mask.height} (width×height); expected the same size. {advice}",
        path=path,
    )


def check_encodable(image: Image, name: str) -> None:
    """Checks that the encoded payload can hold the image's bytes unchanged.

    Raises:
      DataError: unsupported_format for all but JPEG and PNG.
    """
    if image.format in ("jpeg", "png"):
        return
    raise DataError(
        "unsupported_format",
        f"{name} is a {image.format.upper()} picture; the encoded payload keeps the file's "
        "bytes, and expected are JPEG or PNG. Use --payload raw, or convert the file to PNG.",
        path=name,
    )


def decoder_versions() -> dict[str, str]:
    """Versions of Pillow and of the libraries in it: what decoded and encoded bytes rest on.

    All are pinned with Pillow but "zlib": its Linux wheels take the system's libz.so.1,
    whatever "zlib_ng" says they were built with. Decoding is the same with any; what
    `encode_mask_png` compresses anew may differ.
    """
    names = ("libjpeg_turbo", "jpg", "zlib", "zlib_ng", "webp", "libtiff")
    return {"pillow": PIL.__version__} | {n: features.version(n) or "none" for n in names}


def _open(data: bytes, name: str, max_pixels: int) -> tuple[ImageFile.ImageFile, str]:
    """Opens one picture of at most max_pixels pixels; none of them is decoded yet."""
    kind = containers.find_format(data, name)
    if kind == "jpeg":
        containers.check_jpeg_end(data, name)
    # Of these Pillow may set up whole pictures on opening, so they are judged before.
    elif kind == "png":
        _check_header(containers.check_png(data, name), max_pixels, name)
    elif kind == "gif":
        _check_header(containers.check_gif(data, name), max_pixels, name)
    elif kind == "webp":
        _check_header(containers.check_webp(data, name), max_pixels, name)
    picture = _ask_pillow(lambda: _OPENERS[kind](io.BytesIO(data)), kind, name)
    _check_header(_find_header(picture, kind, name), max_pixels, name)
    return picture, kind


def _find_header(picture: ImageFile.ImageFile, kind: str, name: str) -> Header:
    if kind not in ("tiff", "webp"):
        return Header(picture.width, picture.height)
    width, height, frames = (
        picture.width,
        picture.height,
        1 + getattr(picture, "is_animated", False),
    )
    if isinstance(picture, TiffImageFile):
        # libtiff unpacks a whole tile at a time, however little of it the picture covers.
        tile = [picture.tag_v2.get(tag, 1) for tag in (322, 323)]
        if not all(isinstance(length, int) for length in tile):
            containers.refuse_damaged("corrupt", "its tiles have no size", kind, name)
        width, height = max((width, height), (tile[0], tile[1]), key=lambda it: it[0] * it[1])
    return Header(width, height, frames)


def _check_header(header: Header, max_pixels: int, name: str) -> None:
    if header.width * header.height > max_pixels:
        raise DataError(
            "too_many_pixels",
            f"{name} declares {header.width}×{header.height} = {header.width * header.height} "
            f"pixels (width×height); expected at most {max_pixels}. Raise --max-pixels if it is "
            "a real picture, or drop the row.",
            path=name,
        )
    if header.frames > 1:
        raise DataError(
            "multi_frame",
            f"{name} holds more than one frame; expected one picture. Save the frame that is "
            "meant to a file of its own.",
            path=name,
        )


def _ask_pillow(call: Callable[[], _T], kind: str, name: str) -> _T:
    """Calls Pillow, and nothing else: whatever it raises, the file is at fault.

    Its plugins raise nearly anything on damaged data (OSError, SyntaxError, ValueError,
    struct.error, IndexError, TypeError, AssertionError …), so no list would be complete.
    """
    try:
        return call()
    except MemoryError:
        raise
    except Exception as error:
        _refuse_failed(error, kind, name)


def _refuse_failed(error: Exception, kind: str, name: str) -> NoReturn:
    if "out of memory" in str(error):  # of a codec, which Pillow makes an OSError
        raise MemoryError(f"{name}: {error}") from error
    words = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if " at 0x" in words:  # a message must be the same every time
        words = type(error).__name__
    containers.refuse_damaged(_name_failure(error), f"Pillow says {words}", kind, name)


def _name_failure(error: Exception) -> str:
    """The reject code of what Pillow raised."""
    words = str(error)
    if words.startswith(("cannot handle", "Unsupported BMP", "unknown pixel mode")):
        return "unsupported_mode"
    if isinstance(error.__cause__ or error, (EOFError, IndexError, struct.error)):
        return "truncated"
    cut = ("truncated", "Truncated", "not enough image data", "Reached EOF")
    return "truncated" if any(word in words for word in cut) else "corrupt"


def _check_image_mode(picture: ImageFile.ImageFile, kind: str, data: bytes, name: str) -> None:
    bits, _ = _find_depth(picture, kind, data)
    # Of a BMP with a grey palette Pillow forgets the palette, and may forget the bits.
    misread = kind == "bmp" and bits != {"1": 1, "L": 8}.get(picture.mode, bits)
    if bits <= 8 and picture.mode in _COLOUR_MODES | _SINGLE_MODES and not misread:
        return
    raise DataError(
        "unsupported_mode",
        f"{name} is a {kind.upper()} picture of {bits} bits a sample (Pillow's mode "
        f"{picture.mode}), which has no faithful conversion; expected RGB, grey, palette, CMYK "
        "or YCbCr of at most 8 bits. Convert it to 8-bit RGB.",
        path=name,
    )


def _check_mask_mode(picture: ImageFile.ImageFile, kind: str, data: bytes, name: str) -> None:
    if fault := _find_mask_fault(picture, kind, data):
        code, found, advice = fault
        raise DataError(
            code,
            f"{name} is a {kind.upper()} mask {found}; expected class ids as palette indexes "
            f"or 8-bit grey, in a lossless format. {advice}",
            path=name,
        )


def _find_mask_fault(
    picture: ImageFile.ImageFile, kind: str, data: bytes
) -> tuple[str, str, str] | None:
    """Reject code, what was found and what to do; None for a mask as it should be."""
    bits, exact = _find_depth(picture, kind, data)
    mode = f"(Pillow's mode {picture.mode})"
    if _is_lossy(picture, kind, data):
        return "lossy_mask", "with lossy compression, which turns ids into noise", _LOSSY
    if bits > 8 or picture.mode not in _COLOUR_MODES | _SINGLE_MODES:
        return "unsupported_mode", f"of {bits} bits a sample {mode}", _SAVE_MASK
    if picture.mode in _COLOUR_MODES:
        advice = f"Map each colour to its class id. {_SAVE_MASK}"
        return "mask_not_indexed", f"of colours {mode}, not of class ids", advice
    if picture.mode == "P" or exact:
        return None
    rescaled = "that decoders rescale or invert: 4-bit ids 0, 1, 2, 15 come back as 0, 17, 34, 255"
    return "unsupported_mode", f"of {bits}-bit grey {rescaled}", _SAVE_MASK


def _find_depth(picture: ImageFile.ImageFile, kind: str, data: bytes) -> tuple[int, bool]:
    """Bits of a sample as stored, and whether grey levels come out of Pillow as stored.

    Pillow opens 16-bit colour as 8-bit RGB without a word, and stretches grey of fewer bits
    (in PPM, of any maximum but 255) to 0 to 255.
    """
    if kind == "png":
        return data[24], data[24] == 8
    if isinstance(picture, TiffImageFile):
        bits = int(max(picture.tag_v2.get(258, (1,))))
        return bits, bits == 8 and picture.tag_v2.get(262) != 0  # 0: white is zero
    if kind == "ppm":
        return _find_ppm_depth(picture)
    if kind == "bmp" and picture.mode in _SINGLE_MODES:
        at = 24 if data[14] == 12 else 28  # after the width and height of either header
        bits = int.from_bytes(data[at : at + 2], "little")
        return bits, bits == 8 and picture.mode != "1"
    return 8, True


def _find_ppm_depth(picture: ImageFile.ImageFile) -> tuple[int, bool]:
    if picture.mode == "1":
        return 1, False
    args = picture.tile[0].args  # (raw mode, maximum), or the raw mode alone where it is 255
    maximum = args[-1] if isinstance(args, tuple) and isinstance(args[-1], int) else 255
    return maximum.bit_length(), maximum == 255


def _is_lossy(picture: ImageFile.ImageFile, kind: str, data: bytes) -> bool:
    if kind == "webp":
        return not containers.is_lossless_webp(data)
    return kind == "jpeg" or (kind == "tiff" and picture.info.get("compression") in _LOSSY_TIFF)


def _load(picture: ImageFile.ImageFile, kind: str, data: bytes, name: str) -> None:
    """Decodes all pixels. Pillow leaves rows at zero that a PNG's stream does not have."""
    _ask_pillow(picture.load, kind, name)
    if kind == "png":
        bottom = (0, picture.height - 1, picture.width, picture.height)
        # Only then is it worth decompressing a second time. Interlaced rows come in passes.
        if data[28] or not picture.crop(bottom).getbbox(alpha_only=False):
            containers.check_png_rows(data, name)


def _convert_to_rgb(picture: ImageFile.ImageFile, kind: str, name: str) -> PilImage.Image:
    if picture.mode == "RGB":
        return picture
    # convert("RGB") drops alpha anyway, but warns of a palette's.
    picture.info.pop("transparency", None)
    return _ask_pillow(lambda: picture.convert("RGB"), kind, name)


def _pack(picture: PilImage.Image) -> bytes:
    """As `picture.tobytes()`, which joins pieces of 64 KiB and is 15 % slower for it."""
    size_bytes = picture.width * picture.height * len(picture.mode)
    encoder = PilImage._getencoder(picture.mode, "raw", (picture.mode,))
    encoder.setimage(picture.im, (0, 0, picture.width, picture.height))
    packed = encoder.encode(size_bytes)[2]
    if len(packed) != size_bytes:
        raise RuntimeError(f"packed {len(packed)} bytes of {size_bytes}")
    return packed


def _is_lying(image: Image, data: bytes) -> bool:
    """Tells whether the EXIF orientation (tag 0x0112) exchanges height and width."""
    if image.format == "tiff":  # Pillow has turned it
        return False
    try:
        return _OPENERS[image.format](io.BytesIO(data)).getexif().get(0x0112) in (5, 6, 7, 8)
    except Exception:  # whatever Pillow raises on odd EXIF; it decides the advice alone
        return False


def encode_rgb_png(pixels: bytes, height: int, width: int) -> bytes:
    """Writes height × width × 3 uint8 RGB values as PNG."""
    return _save_png(PilImage.frombytes("RGB", (width, height), pixels))


def encode_palette_png(ids: bytes, height: int, width: int) -> bytes:
    """Writes height × width class ids as palette PNG: ids survive, and a person can tell them.

    The colours are VOC's, whatever the source's were (VOC devkit, VOClabelcolormap.m).
    """
    picture = PilImage.frombytes("P", (width, height), ids)
    picture.putpalette([_voc_level(value, shift) for value in range(256) for shift in range(3)])
    return _save_png(picture)


def _voc_level(value: int, shift: int) -> int:
    """Red (shift 0), green or blue of a class: every third bit of the id, the lowest on top."""
    return sum((value >> 3 * bit + shift & 1) << 7 - bit for bit in range(3))


def _save_png(picture: PilImage.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG", compress_level=_PNG_LEVEL)
    return out.getvalue()
