"""Lists the pairs of a folder, for a manifest: what `pairshard manifest` writes.

Nothing is left out in silence: a picture without a partner, and a file that is no picture,
are returned for the report, and an id without files is listed (it becomes a reject).
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from transforms.core.errors import ConfigError, PlaceError

_PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
_VOC_IMAGES, _VOC_MASKS, _VOC_IDS = "JPEGImages", "SegmentationClass", "ImageSets/Segmentation"


@dataclass(frozen=True, slots=True)
class Listing:
    """Two folders' files, paired; all paths are relative to `root`, in the bytes' order.

    Attributes:
      root: the deepest folder that holds both; to be the manifest's --source-root.
      pairs: (image, mask), each by the same relative name without suffix and ending.
      images_alone, masks_alone: pictures without a partner.
      skipped: what was not looked at: other endings, names without the suffix, hidden files,
        folders that are links (they can make loops). A folder's name ends in '/'.
    """

    root: str
    pairs: tuple[tuple[str, str], ...]
    images_alone: tuple[str, ...]
    masks_alone: tuple[str, ...]
    skipped: tuple[str, ...]


def list_voc(root: str, ids_file: str) -> Iterator[tuple[str, str]]:
    """Lists a data set laid out like PASCAL VOC (devkit, section 6.1: one id a line).

    Args:
      root: the folder that holds JPEGImages and SegmentationClass.
      ids_file: a file, or its name, without '.txt' if you like, in ImageSets/Segmentation or
        in `root`.

    Returns:
      (image, mask) relative to `root`, in the ids' order; the files need not be there.

    Raises:
      ConfigError: a folder or the ids are not there, or the file is no list of ids.
    """
    for folder in (_VOC_IMAGES, _VOC_MASKS):
        if not os.path.isdir(os.path.join(root, folder)):
            raise ConfigError(f"{root}: has no folder {folder}; give the one with {_VOC_IMAGES}")
    ids = _read_ids(_find_ids(root, ids_file))
    return ((_find_voc_image(root, id_), f"{_VOC_MASKS}/{id_}.png") for id_ in ids)


def list_dirs(images: str, masks: str, *, image_suffix: str = "", mask_suffix: str = "") -> Listing:
    """Pairs the pictures of two folders, and of those in them, by their names.

    Args:
      images, masks: the folders; one may be in the other, or both the same if the masks
        have a suffix.
      image_suffix, mask_suffix: what a name without its ending has at its end beyond the
        partner's ("_leftImg8bit", "_gtFine_labelIds"); files without it are skipped.

    Raises:
      ConfigError: a folder is not there, two files claim one name, or nothing can be paired.
      PlaceError: a folder can't be read.
    """
    images, masks = _check_folder(images), _check_folder(masks)
    if images == masks and not mask_suffix:
        raise ConfigError(f"{images}: masks in the images' folder need --mask-suffix, as '_mask'")
    root = os.path.commonpath([images, masks])
    skipped: list[str] = []
    mask_of = _index_by_stem(_walk(masks, images, root, skipped), masks, root, mask_suffix, skipped)
    taken = set(mask_of.values())
    rest = (path for path in _walk(images, masks, root, skipped) if path not in taken)
    image_of = _index_by_stem(rest, images, root, image_suffix, skipped)
    if not image_of.keys() & mask_of.keys():
        _refuse_unpaired(image_of, mask_of)
    # In one folder, what is skipped as a mask can be taken as an image.
    return _pair(root, image_of, mask_of, set(skipped) - taken - set(image_of.values()))


def _pair(
    root: str, image_of: dict[str, str], mask_of: dict[str, str], skipped: set[str]
) -> Listing:
    return Listing(
        root=root,
        pairs=tuple(sorted((image_of[s], mask_of[s]) for s in image_of.keys() & mask_of.keys())),
        images_alone=tuple(sorted(image_of[s] for s in image_of.keys() - mask_of.keys())),
        masks_alone=tuple(sorted(mask_of[s] for s in mask_of.keys() - image_of.keys())),
        skipped=tuple(sorted(skipped)),
    )


def _find_ids(root: str, ids_file: str) -> str:
    named = [os.path.join(root, _VOC_IDS, ids_file), os.path.join(root, ids_file)]
    candidates = [ids_file, *(path + end for path in named for end in ("", ".txt"))]
    for path in candidates:
        if os.path.isfile(path):
            return path
    raise ConfigError(f"--ids {ids_file}: no such file, here or in {root} or its {_VOC_IDS}")


def _read_ids(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            lines = [line.split() for line in file]
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text; a list of ids is expected") from None
    except OSError as error:
        raise PlaceError(f"{path}: can't be read: {error.strerror or error}") from error
    for number, fields in enumerate(lines, 1):
        if len(fields) > 1:
            # Such a list says whether a class is in the picture, not whether a mask exists.
            raise ConfigError(
                f"{path}: line {number} has {len(fields)} fields, expected one id; of VOC's lists "
                f"take those in {_VOC_IDS}; a list of pairs is itself a manifest for build"
            )
    ids = [fields[0] for fields in lines if fields]
    if not ids:
        raise ConfigError(f"{path}: holds no ids")
    return ids


def _find_voc_image(root: str, id_: str) -> str:
    paths = [f"{_VOC_IMAGES}/{id_}{end}" for end in (".jpg", ".jpeg", ".JPG", ".JPEG", ".png")]
    # Where there is none, the name that VOC gives it: the build reports it as missing.
    return next((path for path in paths if os.path.isfile(os.path.join(root, path))), paths[0])


def _check_folder(path: str) -> str:
    if not os.path.isdir(path):
        raise ConfigError(f"{path}: there is no such folder")
    return os.path.abspath(path)


def _walk(folder: str, other: str, root: str, skipped: list[str]) -> Iterator[str]:
    """Yields the pictures below `folder` but not those in `other` inside it; '/' as separator."""
    for parent, folders, names in os.walk(folder, onerror=_refuse_folder):
        for name in list(folders):
            path = os.path.join(parent, name)
            if path == other or name.startswith(".") or os.path.islink(path):
                folders.remove(name)
                if path != other:
                    skipped.append(_name(path, root) + "/")
        for name in names:
            path = _name(os.path.join(parent, name), root)
            if not name.startswith(".") and posixpath.splitext(name)[1].lower() in _PICTURES:
                yield path
            else:
                skipped.append(path)


def _name(path: str, root: str) -> str:
    name = os.path.relpath(path, root)
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{name!r}: the name is not UTF-8; a manifest can't hold it") from None
    return name


def _refuse_folder(error: OSError) -> NoReturn:
    # os.walk would pass over a folder that it can't read.
    raise PlaceError(f"{error.filename}: can't be read: {error.strerror}") from error


def _index_by_stem(
    paths: Iterator[str], folder: str, root: str, suffix: str, skipped: list[str]
) -> dict[str, str]:
    """Maps names relative to `folder`, without suffix and ending, to paths."""
    found: dict[str, str] = {}
    start = 0 if folder == root else len(os.path.relpath(folder, root)) + 1
    for path in paths:
        stem = posixpath.splitext(path[start:])[0]
        if not stem.endswith(suffix):
            skipped.append(path)
            continue
        stem = stem.removesuffix(suffix)
        if stem in found:
            first, second = sorted((found[stem], path))
            raise ConfigError(f"{first!r} and {second!r} have the same name but for the ending")
        found[stem] = path
    return found


def _refuse_unpaired(image_of: dict[str, str], mask_of: dict[str, str]) -> NoReturn:
    image, mask = (repr(min(of.values(), default="none")) for of in (image_of, mask_of))
    raise ConfigError(
        f"of {len(image_of)} images and {len(mask_of)} masks none have the same name (image "
        f"{image}, mask {mask}); say what differs with --image-suffix or --mask-suffix"
    )
