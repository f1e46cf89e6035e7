"""Verification: the companion stage, and the last step before a build commits."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO, TypeVar

import apache_beam as beam

from beam_pipeline.config import Resources, Sampling, VerifyConfig
from beam_pipeline.graph import CHECKS, define_verify
from beam_pipeline.output import open_dataset
from transforms.core import files, keys
from transforms.core.errors import ConfigError
from transforms.core.progress import PROGRESS
from transforms.core.reports import DATASET, REJECTS, RUN
from transforms.core.shards import SUFFIX, IndexSums, ShardId, format_shard_name
from transforms.core.verifying import Failure, ShardCheck, VerifyInfo
from transforms.write_account import read_account

Engine = Callable[[Callable[[beam.Pipeline], None], Resources], dict[str, int]]
"""Runs a graph to its end and returns the committed counters; one per place in `launch`."""

_T = TypeVar("_T", str, int)

THREADS_PER_WORKER = 4  # beyond, they wait for the interpreter lock more than they compare
RECORDS_PER_WORKER = 2_000  # below, another process costs more than it brings: the import


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a verification found.

    Attributes:
      shards, records: that there should be; all that are there were read.
      compared: records that were compared with their sources.
      failures: what is wrong, sorted.
      changed: records whose source is another one than at the build, sorted.
      seconds: that it took.
      verified: shards without a failure, all of whose sampled sources were unchanged.
    """

    shards: int
    records: int
    compared: int
    failures: tuple[Failure, ...]
    changed: tuple[Failure, ...]
    seconds: float
    verified: tuple[str, ...] = ()


def open_dataset_folder(
    folder: str, source_root: str | None, sampling: Sampling, resources: Resources
) -> tuple[VerifyConfig, list[ShardCheck], list[Failure]]:
    """Prepares the verification of a data set that is there.

    Args:
      folder: of the data set.
      source_root: where the sources are now; None: where they were at the build.

    Returns:
      The configuration, a check for every shard, and what is wrong at the first glance.

    Raises:
      ConfigError: the folder holds no data set, or the source root is not there.
    """
    dataset = open_dataset(folder)
    try:
        checks = _list_checks(dataset)
        expected = _expect_sums(dataset)
        failures = [
            *_check_sums(dataset),
            *_check_names(dataset),
            *_check_rejects(folder, dataset["rows"]["rejected"]),
            *_find_strangers(folder, checks),
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{folder}/{DATASET} is damaged: {error!r}") from error
    root = _find_root(folder, source_root)
    config = VerifyConfig(folder, root, str(dataset["payload"]), sampling, resources, expected)
    return config, choose_shards(checks, sampling), failures


def choose_shards(checks: Sequence[ShardCheck], sampling: Sampling) -> list[ShardCheck]:
    """Marks in which shards records are compared: the lowest by rank of their name."""
    if sampling.num_shards is None:
        return list(checks)
    ranked = sorted(checks, key=lambda check: keys.verify_rank(check.name, seed=sampling.seed))
    chosen = {check.name for check in ranked[: sampling.num_shards]}
    return [replace(check, sampled=check.name in chosen) for check in checks]


def run_verify(
    config: VerifyConfig,
    checks: list[ShardCheck],
    engine: Engine,
    known: Sequence[Failure] = (),
) -> VerifyReport:
    """Verifies shards on an engine; writes nothing into the data set's folder.

    Args:
      config: what is verified, and how.
      checks: every shard.
      engine: runs the graph.
      known: what is wrong already; it goes into the report.
    """
    begun = time.monotonic()
    PROGRESS.begin("verify", sum(check.records for check in checks))
    config = _settle(config, checks)
    with files.temporary_folder() as accounts:
        define = partial(define_verify, config=config, checks=checks, accounts=accounts)
        engine(define, config.resources)
        infos = read_account(accounts, CHECKS)
    found = [info for info in infos if isinstance(info, VerifyInfo)]
    if sorted(info.name for info in found) != sorted(check.name for check in checks):
        raise RuntimeError("the verification did not report on every shard")
    sums = _check_index_sums(config.expected, found) if config.expected else []
    return _make_report(found, [*known, *sums], time.monotonic() - begun)


def _settle(config: VerifyConfig, checks: Sequence[ShardCheck]) -> VerifyConfig:
    """Leaves out what so many records don't need: ranks, where all are compared; processes."""
    sampling = config.sampling
    records = sum(check.records for check in checks if check.sampled)
    if sampling.records is not None and records <= sampling.records:
        sampling = replace(sampling, records=None, fraction=1.0)
    compared = int(min(records * sampling.fraction, sampling.records or records))
    cores = max(config.resources.threads, config.resources.workers)
    useful = max(1, min(len(checks), compared // RECORDS_PER_WORKER))
    workers = min(useful, -(-cores // THREADS_PER_WORKER))
    resources = replace(config.resources, workers=workers, threads=-(-cores // workers))
    return replace(config, sampling=sampling, resources=resources)


def _make_report(
    infos: Sequence[VerifyInfo], known: Sequence[Failure], seconds: float
) -> VerifyReport:
    failures = sorted([*known, *(failure for info in infos for failure in info.failures)])
    return VerifyReport(
        shards=len(infos),
        records=sum(info.records for info in infos),
        compared=sum(info.compared for info in infos),
        failures=tuple(f for f in failures if not f.source_changed),
        changed=tuple(f for f in failures if f.source_changed),
        seconds=seconds,
        verified=tuple(sorted(info.name for info in infos if not info.failures)),
    )


def _list_checks(dataset: Mapping[str, Any]) -> list[ShardCheck]:
    seed = int(dataset["settings"]["seed"])
    return [
        ShardCheck(entry["name"], entry["records"], entry["bytes"], int(entry["crc32c"], 16), seed)
        for split in dataset["splits"].values()
        for entry in split["shards"]
    ]


def _check_sums(dataset: Mapping[str, Any]) -> Iterator[Failure]:
    """Adds up what dataset.json says: no row may be lost on the way."""
    rows = dataset["rows"]
    sums = {"rows read": (rows["read"], rows["written"] + sum(rows["rejected"].values()))}
    written = 0
    for name, split in dataset["splits"].items():
        for what in ("records", "bytes"):
            sums[f"{what} of {name}"] = (split[what], sum(s[what] for s in split["shards"]))
        written += sums[f"records of {name}"][1]
    sums["rows written"] = (rows["written"], written)
    for what, (said, summed) in sums.items():
        if said != summed:
            yield Failure(DATASET, -1, "", f"{what}: it says {said}, which sum to {summed}")


def _check_names(dataset: Mapping[str, Any]) -> Iterator[Failure]:
    """Holds the shards' names against their splits: what belongs in a shard follows from it."""
    for name, split in dataset["splits"].items():
        found = [entry["name"] for entry in split["shards"]]
        count = len(found)
        if found != [format_shard_name(ShardId(name, n, count)) for n in range(count)]:
            what = f"shards of {name}: the names of all {count} were expected, in order"
            yield Failure(DATASET, -1, "", what)


def _check_rejects(folder: str, rejected: Mapping[str, int]) -> Iterator[Failure]:
    """Counts the lines of rejects.jsonl by code."""
    path = os.path.join(folder, REJECTS)
    try:
        file = files.open_file(path)
    except FileNotFoundError:
        yield Failure(REJECTS, -1, "", f"{REJECTS} is missing")
        return
    with file, files.place_errors(path, "reading"):
        listed, broken = _count_codes(file)
    if broken:
        what = f"{len(broken)} lines can't be read as a reject, the first is line {broken[0]}"
        yield Failure(REJECTS, -1, "", what)
    for code, said, found in _compare_counts(rejected, listed):
        what = f"rejects of {code}: it has {found} lines, {DATASET} says {said}"
        yield Failure(REJECTS, -1, "", what)


def _count_codes(file: BinaryIO) -> tuple[Counter[str], list[int]]:
    """Returns the number of rejects by code, and the lines that are none."""
    listed: Counter[str] = Counter()
    broken: list[int] = []
    for number, line in enumerate(file, 1):
        try:
            listed[str(json.loads(line)["code"])] += 1
        except (ValueError, LookupError, TypeError, RecursionError):
            broken.append(number)
    return listed, broken


def _expect_sums(dataset: Mapping[str, Any]) -> IndexSums:
    """Returns what dataset.json says of the indexes' rows; a bad_row is in none of them."""
    rejected = {c: number for c, number in dataset["rows"]["rejected"].items() if c != "bad_row"}
    pixels = {int(value): entry["pixels"] for value, entry in dataset["classes"].items()}
    return IndexSums(keys.sort_counts(rejected), tuple(sorted(pixels.items())))


def _check_index_sums(expected: IndexSums, infos: Sequence[VerifyInfo]) -> Iterator[Failure]:
    """Holds dataset.json against the indexes, if all can be read: else that is reported."""
    sums = [info.sums for info in infos if info.sums]
    if len(sums) < len(infos):
        return
    rejected: Counter[str] = Counter()
    pixels: Counter[int] = Counter()
    for one in sums:
        rejected.update(dict(one.rejected))
        pixels.update(dict(one.pixel_counts))
    for code, said, found in _compare_counts(dict(expected.rejected), rejected):
        what = f"rows rejected as {code}: it says {said}, the indexes have {found}"
        yield Failure(DATASET, -1, "", what)
    for value, said, found in _compare_counts(dict(expected.pixel_counts), pixels):
        what = f"pixels of class {value}: it says {said}, the indexes have {found}"
        yield Failure(DATASET, -1, "", what)


def _compare_counts(said: Mapping[_T, int], found: Mapping[_T, int]) -> list[tuple[_T, int, int]]:
    """Returns (what, number said, number found) where the two differ."""
    names = sorted(said.keys() | found.keys())
    pairs = ((name, said.get(name, 0), found.get(name, 0)) for name in names)
    return [pair for pair in pairs if pair[1] != pair[2]]


def _find_strangers(folder: str, checks: Sequence[ShardCheck]) -> Iterator[Failure]:
    """Finds files that a reader's glob would take for shards."""
    known = {check.name for check in checks}
    for name in sorted(os.listdir(folder)):
        if SUFFIX in name and name not in known:
            what = f"is none of the shards of {DATASET}; a reader's glob would read it too"
            yield Failure(name, -1, "", what)


def _find_root(folder: str, given: str | None) -> str:
    root = given or _recorded_root(folder)
    if not os.path.isdir(root):
        where = f"the source root {root} is not there" if root else f"{RUN} names no source root"
        raise ConfigError(f"{where}; --source-root says where the sources are now")
    return os.path.abspath(root)


def _recorded_root(folder: str) -> str:
    data = files.read_file(os.path.join(folder, RUN))
    try:
        return str(json.loads(data)["source_root"]) if data else ""
    except (ValueError, KeyError, TypeError):
        return ""
