"""Verification: the companion stage, and the last step before a build commits."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import apache_beam as beam

from beam_pipeline.config import Resources, Sampling, VerifyConfig
from beam_pipeline.graph import CHECKS, define_verify
from beam_pipeline.output import read_dataset_json, read_mark
from transforms.core import files, keys
from transforms.core.errors import ConfigError
from transforms.core.progress import PROGRESS
from transforms.core.reports import RUN
from transforms.core.verifying import Failure, ShardCheck, VerifyInfo
from transforms.write_account import read_account

Engine = Callable[[Callable[[beam.Pipeline], None], Resources], dict[str, int]]
"""Runs a graph to its end and returns the committed counters; one per place in `launch`."""

RECORDS_PER_CHILD = 500  # below, another process costs more than it brings: TensorFlow's import


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a verification found.

    Attributes:
      shards, records: that were read.
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
) -> tuple[VerifyConfig, list[ShardCheck]]:
    """Prepares the verification of a data set that is there.

    Args:
      folder: of the data set.
      source_root: where the sources are now; None: where they were at the build.

    Raises:
      ConfigError: the folder holds no data set, or the source root is not there.
    """
    dataset = read_dataset_json(folder)
    if dataset is None:
        hint = " (an unfinished build: run it to its end)" if _is_unfinished(folder) else ""
        raise ConfigError(f"{folder} has no dataset.json{hint}; a data set's folder is meant")
    root = source_root or _recorded_root(folder)
    if not os.path.isdir(root):
        raise ConfigError(
            f"the source root {root} is not there; --source-root says where it is now"
        )
    checks = [
        ShardCheck(entry["name"], entry["records"], entry["bytes"], int(entry["crc32c"], 16))
        for split in dataset["splits"].values()
        for entry in split["shards"]
    ]
    config = VerifyConfig(
        folder, os.path.abspath(root), str(dataset["payload"]), sampling, resources
    )
    return config, choose_shards(checks, sampling)


def choose_shards(checks: Sequence[ShardCheck], sampling: Sampling) -> list[ShardCheck]:
    """Marks in which shards records are compared: the lowest by rank of their name."""
    if sampling.num_shards is None:
        return list(checks)
    ranked = sorted(checks, key=lambda check: keys.verify_rank(check.name, seed=sampling.seed))
    chosen = {check.name for check in ranked[: sampling.num_shards]}
    return [replace(check, sampled=check.name in chosen) for check in checks]


def run_verify(config: VerifyConfig, checks: list[ShardCheck], engine: Engine) -> VerifyReport:
    """Verifies shards on an engine; writes nothing into the data set's folder."""
    begun = time.monotonic()
    PROGRESS.begin("verify", sum(check.records for check in checks))
    with files.temporary_folder() as accounts:
        define = partial(define_verify, config=config, checks=checks, accounts=accounts)
        engine(define, _limit_workers(config, checks))
        infos = read_account(accounts, CHECKS)
    found = [info for info in infos if isinstance(info, VerifyInfo)]
    if sorted(info.name for info in found) != sorted(check.name for check in checks):
        raise RuntimeError("the verification did not report on every shard")
    return _make_report(found, time.monotonic() - begun)


def _limit_workers(config: VerifyConfig, checks: Sequence[ShardCheck]) -> Resources:
    """As many processes as there are threads, but not more than the sample keeps busy."""
    sampling = config.sampling
    records = sum(check.records for check in checks if check.sampled) * sampling.fraction
    compared = min(records, sampling.records or records)
    resources = config.resources
    useful = max(1, min(len(checks), int(compared) // RECORDS_PER_CHILD))
    return replace(resources, workers=min(useful, max(resources.threads, resources.workers)))


def _make_report(infos: Sequence[VerifyInfo], seconds: float) -> VerifyReport:
    failures = sorted(failure for info in infos for failure in info.failures)
    return VerifyReport(
        shards=len(infos),
        records=sum(info.records for info in infos),
        compared=sum(info.compared for info in infos),
        failures=tuple(f for f in failures if not f.source_changed),
        changed=tuple(f for f in failures if f.source_changed),
        seconds=seconds,
        verified=tuple(sorted(info.name for info in infos if not info.failures)),
    )


def _is_unfinished(folder: str) -> bool:
    return read_mark(folder) is not None


def _recorded_root(folder: str) -> str:
    data = files.read_file(os.path.join(folder, RUN))
    return str(json.loads(data)["source_root"]) if data else ""
