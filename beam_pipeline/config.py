"""What a run is to do, checked before anything is submitted."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from fractions import Fraction

from transforms.core import manifest_rows, manifests
from transforms.core.errors import ConfigError
from transforms.core.manifest_rows import ManifestOptions
from transforms.core.pairs import PAYLOADS
from transforms.core.settings import DEFAULT_SPLIT, RecordSettings, ShardSettings
from transforms.core.shards import IndexSums

VERIFY_MODES = ("sample", "all", "none")
SAMPLED_RECORDS = 10_000
MAX_PIXELS_LIMIT = 500_000_000  # four bytes each: a protobuf can't exceed 2 GiB
_SIZE_UNITS = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4}
_SIZE_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def _check_choice(option: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{option} {value}: one of {', '.join(choices)} is meant")


def _check_range(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigError(f"{option} {value}: a number from {low} to {high} is meant")


@dataclass(frozen=True, slots=True)
class Gate:
    """How many rejects a build may have.

    Attributes:
      rows: at most so many; or
      share: at most this share of all rows.
    """

    rows: int = 0
    share: Fraction | None = None

    def is_passed(self, rejected: int, rows: int) -> bool:
        """Tells whether so many rejects of so many rows are accepted."""
        if self.share is not None:
            return rejected <= self.share * rows
        return rejected <= self.rows

    def __str__(self) -> str:
        return f"{float(self.share * 100):g}%" if self.share is not None else str(self.rows)


@dataclass(frozen=True, slots=True)
class Sampling:
    """Which records are compared with their sources.

    Attributes:
      records: at most so many, the lowest in rank; None: `fraction` decides.
      fraction: of all records.
      num_shards: compare in so many shards only; None: in all.
      seed: of the ranks.
    """

    records: int | None = SAMPLED_RECORDS
    fraction: float = 1.0
    num_shards: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ConfigError(f"--fraction {self.fraction:g}: a share above 0, at most 1, is meant")
        if self.num_shards is not None and self.num_shards < 1:
            raise ConfigError(f"--shards {self.num_shards}: at least one shard is meant")


@dataclass(frozen=True, slots=True)
class Resources:
    """What a run may use; nothing of it decides a byte.

    Attributes:
      runner: 'local', …
      workers: processes; 1: this one.
      threads: that decode, in each process; 0: as many as keep the workers' cores busy.
      beam_options: for Beam itself.
    """

    runner: str = "local"
    workers: int = 1
    threads: int = 1
    beam_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_range("--workers", self.workers, 1, 1024)
        _check_range("--threads", self.threads, 0, 1024)


@dataclass(frozen=True, slots=True)
class BuildConfig:
    """A build: what goes in, what comes out, and what it may use.

    Attributes:
      manifests: absolute paths of the manifest files.
      reading: how they are read; holds the source root.
      output: the data set's folder, absolute.
      record, shards: what decides bytes.
      gate: how many rejects are accepted.
      verify: 'sample', 'all' or 'none'.
      resources: what it may use.
    """

    manifests: tuple[str, ...]
    reading: ManifestOptions
    output: str
    record: RecordSettings
    shards: ShardSettings
    gate: Gate = Gate()
    verify: str = "sample"
    resources: Resources = Resources()

    def __post_init__(self) -> None:
        _check_choice("--payload", self.record.payload, PAYLOADS)
        _check_choice("--verify", self.verify, VERIFY_MODES)
        _check_range("--max-pixels", self.record.max_pixels, 1, MAX_PIXELS_LIMIT)
        _check_range("--ignore-id", self.record.ignore_id, 0, 255)
        if self.record.num_classes is not None:
            _check_range("--classes", self.record.num_classes, 1, 256)
        for path in self.manifests:
            manifests.check_manifest(path, self.reading)

    @property
    def sampling(self) -> Sampling:
        """Which records the build itself compares."""
        return Sampling(records=None if self.verify == "all" else SAMPLED_RECORDS)


@dataclass(frozen=True, slots=True)
class VerifyConfig:
    """A verification of a data set that is there.

    Attributes:
      folder: of the data set, absolute.
      source_root: where the sources are now, absolute.
      payload: 'raw' or 'encoded'.
      sampling: which records are compared.
      resources: what it may use.
      expected: what the indexes of all shards add up to; None: nothing says so yet.
    """

    folder: str
    source_root: str
    payload: str
    sampling: Sampling
    resources: Resources
    expected: IndexSums | None = None


def parse_size(text: str) -> int:
    """Parses a size with a unit: '256MiB', '1GB', '65536'.

    Returns:
      Bytes, at least 1.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    unit = _SIZE_UNITS.get(match[2].upper()) if match else None
    size = int(Fraction(match[1]) * unit) if match and unit else 0
    if size < 1:
        raise ConfigError(f"--shard-size {text}: a size such as 256MiB or 1GB is meant")
    return size


def parse_num_shards(text: str) -> tuple[tuple[str, int], ...]:
    """Parses '64' (of each split) or 'train=64,val=4'."""
    shards: dict[str, int] = {}
    for part in text.split(","):
        name, _, number = part.rpartition("=")
        if not re.fullmatch(r"[0-9]{1,5}", number) or int(number) < 1 or name in shards:
            raise ConfigError(
                f"--num-shards {text}: a number from 1 to 99999 is meant, for each split "
                "(64) or by split (train=64,val=4)"
            )
        shards[name] = int(number)
    if "" in shards and len(shards) > 1:
        raise ConfigError(f"--num-shards {text}: one number for every split, or a name with each")
    return tuple(shards.items())


def parse_splits(text: str) -> tuple[tuple[str, Fraction], ...]:
    """Parses 'train=0.9,val=0.1' into exact shares that sum to 1."""
    splits: dict[str, Fraction] = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        if not manifest_rows.is_split_name(name) or name in splits or not _is_share(share):
            raise ConfigError(
                f"--split {text}: names with shares are meant, such as train=0.9,val=0.1; "
                f"{part!r} is none (a name has letters, digits, '_' and '-')"
            )
        splits[name] = Fraction(share)
    if sum(splits.values()) != 1:
        total = float(sum(splits.values()))
        raise ConfigError(f"--split {text}: the shares sum to {total:g}; they must sum to 1")
    return tuple(splits.items())


def parse_gate(text: str) -> Gate:
    """Parses '3' (rows) or '0.5%' (of the rows read)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(%?)", text.strip())
    if match and match[2] and Fraction(match[1]) <= 100:
        return Gate(share=Fraction(match[1]) / 100)
    if match and not match[2] and match[1].isdigit():
        return Gate(rows=int(match[1]))
    raise ConfigError(f"--max-rejects {text}: a number of rows (3) or a share (0.5%) is meant")


def parse_classes(text: str | None) -> tuple[int | None, tuple[str, ...]]:
    """Parses `--classes`: a number, or a file with one class name a line.

    Returns:
      The number of classes (None: any id is accepted) and their names.
    """
    if text is None:
        return None, ()
    if text.isdigit():
        return int(text), ()
    try:
        with open(text, encoding="utf-8-sig") as file:
            names = tuple(line.strip() for line in file.read().rstrip().splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--classes {text}: neither a number nor a readable text file with one class "
            f"name a line: {error}"
        ) from error
    if not names or "" in names or len(set(names)) < len(names):
        raise ConfigError(
            f"--classes {text}: one name a line is meant, each once, the first for id 0; "
            "there is an empty line or a name that stands twice"
        )
    return len(names), names


def parse_prefixes(texts: list[str]) -> tuple[tuple[str, str], ...]:
    """Parses `--replace-prefix OLD=NEW`, which may be given several times."""
    pairs = []
    for text in texts:
        old, equals, new = text.partition("=")
        if not equals or not old:
            raise ConfigError(f"--replace-prefix {text}: OLD=NEW is meant, such as /data/=")
        pairs.append((old, new))
    return tuple(pairs)


def make_shard_settings(
    *, seed: int, split: str | None, split_by: str, num_shards: str | None, shard_size: str
) -> ShardSettings:
    """Puts the options that decide which row stands where together, and checks them."""
    given = parse_splits(split) if split else ()
    shards = parse_num_shards(num_shards) if num_shards else ()
    strangers = [name for name, _ in shards if name and given and name not in dict(given)]
    if strangers:
        raise ConfigError(
            f"--num-shards {num_shards}: {', '.join(strangers)} is none of the splits of "
            f"--split {split}"
        )
    return ShardSettings(
        seed=seed,
        splits=given or ((DEFAULT_SPLIT, Fraction(1)),),
        seeded=tuple(name for name, _ in given),
        split_by=split_by,
        num_shards=shards,
        shard_bytes=parse_size(shard_size),
    )


def count_cores() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _is_share(text: str) -> bool:
    return bool(re.fullmatch(r"\d+(\.\d+)?|\d+/[1-9]\d*", text)) and Fraction(text) > 0
