"""The kind `pairs`: an image and its mask become one record. All that is special to it is here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from transforms.core import files, images
from transforms.core.errors import DataError
from transforms.core.examples import BytesList, Feature, Int64List, encode_example
from transforms.core.files import Source
from transforms.core.settings import RecordSettings
from transforms.core.tfrecord import crc32c_of

PATH_COLUMNS = ("image", "mask")
PAYLOADS = ("raw", "encoded")

_FRAME_AND_NAMES_BYTES = 100  # of a record, beside its pixels: small against any picture


@dataclass(frozen=True, slots=True)
class Record:
    """One record, ready to be written.

    Attributes:
      pieces: the serialized tf.train.Example, to be written one after another.
      size_bytes: of the pieces.
      crc32c: of the pieces.
      height, width: in pixels.
      pixel_counts: (class id, pixels) of the mask, the ids that are present, sorted.
    """

    pieces: list[bytes]
    size_bytes: int
    crc32c: int
    height: int
    width: int
    pixel_counts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """What a feature holds.

    Attributes:
      dtype: 'int64' or 'bytes'.
      holds: in words.
      array: which array its bytes decode to: 'image', 'mask' or '' for none.
    """

    dtype: str
    holds: str
    array: str = ""


FEATURES: Mapping[str, Mapping[str, FeatureSpec]] = {
    "raw": {
        "height": FeatureSpec("int64", "pixels"),
        "width": FeatureSpec("int64", "pixels"),
        "image_raw": FeatureSpec("bytes", "uint8[height,width,3] RGB, row-major", "image"),
        "mask_raw": FeatureSpec("bytes", "uint8[height,width] class ids, row-major", "mask"),
    },
    "encoded": {
        "image/encoded": FeatureSpec("bytes", "the image file's own bytes, JPEG or PNG", "image"),
        "image/format": FeatureSpec("bytes", "'jpeg' or 'png'"),
        "image/filename": FeatureSpec("bytes", "the image's path below the source root, UTF-8"),
        "image/height": FeatureSpec("int64", "pixels"),
        "image/width": FeatureSpec("int64", "pixels"),
        "image/channels": FeatureSpec("int64", "3, as the reader decodes it"),
        "image/segmentation/class/encoded": FeatureSpec(
            "bytes", "greyscale PNG of class ids", "mask"
        ),
        "image/segmentation/class/format": FeatureSpec("bytes", "'png'"),
    },
}
"""The features of each payload; each holds one value.

The names of `encoded` are those that DeepLab's reader expects
(tensorflow/models, research/deeplab/datasets/data_generator.py).
"""


def encode_pair(
    paths: Sequence[str],
    sources: Sequence[Source],
    settings: RecordSettings,
    *,
    admit: Callable[[int], None] = lambda size_bytes: None,
) -> Record:
    """Turns an image and its mask into a record.

    Args:
      paths: of image and mask, as the index names them.
      sources: image and mask.
      settings: payload, classes and limits.
      admit: called with the bytes of pixels that are about to be decoded; it may wait.

    Raises:
      DataError: the pair can't become a record; see docs/reject-codes.md.
    """
    raw = settings.payload == "raw"
    limit = settings.max_pixels
    image = images.decode_image(
        sources[0].data, paths[0], max_pixels=limit, pixels=raw, admit=admit
    )
    mask = images.decode_mask(sources[1].data, paths[1], max_pixels=limit, ids=raw, admit=admit)
    images.check_sizes(image, mask, sources[0].data, paths[0], paths[1])
    images.check_classes(
        mask, paths[1], num_classes=settings.num_classes, ignore_id=settings.ignore_id
    )
    features = _raw_features(image, mask) if raw else _encoded_features(image, mask, paths, sources)
    pieces = encode_example(features)
    return Record(
        pieces=pieces,
        size_bytes=sum(map(len, pieces)),
        crc32c=crc32c_of(pieces),
        height=image.height,
        width=image.width,
        pixel_counts=mask.pixel_counts,
    )


def reckon_size(root: str, paths: Sequence[str], settings: RecordSettings) -> int | None:
    """Returns about how many bytes the record of a pair will have, from its headers alone.

    Returns:
      None where a file can't be opened, or is no picture.
    """
    if settings.payload == "encoded":
        prints = [files.stat_source(root, path) for path in paths]
        known = [found.size_bytes for found in prints if found]
        return sum(known) + _FRAME_AND_NAMES_BYTES if len(known) == len(paths) else None
    try:
        with (
            files.open_source(root, paths[0], inside_root=settings.inside_root) as (descriptor, _),
            open(descriptor, "rb", closefd=False) as file,
        ):
            height, width = images.read_size(file)
    except DataError:
        return None  # the build itself will read this file again, and reject it by name
    return height * width * 4 + _FRAME_AND_NAMES_BYTES if height and width else None


def _raw_features(image: images.Image, mask: images.Mask) -> dict[str, Feature]:
    return {
        "height": Int64List([image.height]),
        "width": Int64List([image.width]),
        "image_raw": BytesList([image.pixels]),
        "mask_raw": BytesList([mask.ids]),
    }


def _encoded_features(
    image: images.Image, mask: images.Mask, paths: Sequence[str], sources: Sequence[Source]
) -> dict[str, Feature]:
    images.check_encodable(image, paths[0])
    return {
        "image/encoded": BytesList([sources[0].data]),
        "image/format": BytesList([image.format.encode()]),
        "image/filename": BytesList([paths[0].encode()]),
        "image/height": Int64List([image.height]),
        "image/width": Int64List([image.width]),
        "image/channels": Int64List([3]),
        "image/segmentation/class/encoded": BytesList(
            [images.encode_mask_png(sources[1].data, mask)]
        ),
        "image/segmentation/class/format": BytesList([b"png"]),
    }
