"""All that decides bytes but the rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from importlib import metadata

from transforms.core import images, keys

FORMAT_VERSION = 1
"""Of the layout on disk; a data set of another version is refused."""

DEFAULT_SPLIT = "train"


@dataclass(frozen=True, slots=True)
class RecordSettings:
    """What decides the bytes of one record.

    Attributes:
      kind: of the data; 'pairs'.
      payload: 'raw' (decoded pixels) or 'encoded' (the source's own bytes).
      num_classes: masks hold ids below this, or the ignore id; None: any id in [0, 256).
      class_names: one for each class id; () where there are only numbers.
      ignore_id: the class id of pixels that belong to no class.
      max_pixels: the most pixels (height times width) that a picture may have.
      inside_root: whether sources must lie inside the source root.
    """

    kind: str = "pairs"
    payload: str = "raw"
    num_classes: int | None = None
    class_names: tuple[str, ...] = ()
    ignore_id: int = 255
    max_pixels: int = 100_000_000
    inside_root: bool = True


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """What decides which row stands where.

    Attributes:
      seed: of the order.
      splits: (name, share); the shares sum to 1.
      seeded: splits that are written even if no row falls into them: those that were named.
      split_by: the column that keeps a group in one split; ''.
      num_shards: (split, number), ('', number) for every other split; () for `shard_bytes`.
      shard_bytes: the most that a shard may have in the mean.
    """

    seed: int = 0
    splits: tuple[tuple[str, Fraction], ...] = ((DEFAULT_SPLIT, Fraction(1)),)
    seeded: tuple[str, ...] = ()
    split_by: str = ""
    num_shards: tuple[tuple[str, int], ...] = ()
    shard_bytes: int = 256 << 20


def record_digest(record: RecordSettings, shards: ShardSettings) -> str:
    """Returns the digest of all settings but the number of shards.

    The decoders belong to it: another version of them may give other bytes.
    """
    return keys.digest_of(
        {
            "format_version": FORMAT_VERSION,
            "decoders": decoder_versions(),
            "record": asdict(record),
            "seed": shards.seed,
            "splits": format_splits(shards),
            "seeded": shards.seeded,
            "split_by": shards.split_by,
        }
    )


def settings_digest(record: RecordSettings, shards: ShardSettings) -> str:
    """Returns the digest of all settings as they were given, the number of shards too."""
    given = [list(shards.num_shards), 0 if shards.num_shards else shards.shard_bytes]
    return keys.digest_of([record_digest(record, shards), given])


def decoder_versions() -> dict[str, str]:
    """Versions of all that bytes rest on: Pillow with its libraries, and pyarrow (the index)."""
    return images.decoder_versions() | {"pyarrow": metadata.version("pyarrow")}


def format_splits(shards: ShardSettings) -> list[list[str]]:
    """Returns the splits with their shares as exact text, in the order in which they count."""
    return [[name, str(share)] for name, share in shards.splits]
