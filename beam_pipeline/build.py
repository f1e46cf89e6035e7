"""The order of a build: check, mark, job, reconcile, verify, gate, commit."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial

import apache_beam as beam

from beam_pipeline import output
from beam_pipeline.config import BuildConfig, VerifyConfig
from beam_pipeline.graph import CHANGED, MANIFESTS, SHARDS, define_build
from beam_pipeline.output import BuildMark
from beam_pipeline.verify import Engine, VerifyReport, choose_shards, run_verify
from transforms.core import files, reports
from transforms.core.child import end_children, start_children
from transforms.core.errors import ConfigError, HeldError
from transforms.core.progress import PROGRESS
from transforms.core.rows import Reject
from transforms.core.settings import decoder_versions, record_digest, settings_digest
from transforms.core.shards import ShardId, ShardInfo
from transforms.core.verifying import ShardCheck
from transforms.core.writing import WriteOptions, write_shard
from transforms.read_manifest import ManifestInfo
from transforms.write_account import read_account

LISTED_REJECTS = 10_000
"""run.json lists the places of so many rejects; rejects.jsonl has them all."""


JOB_STAGES = ("prepare", "read", "write")
"""What `PROGRESS` tells apart within a job, where it runs in this process."""


class ReconcileError(Exception):
    """rows read ≠ written + rejected: a bug. Nothing is published."""


@dataclass(slots=True)
class BuildReport:
    """What a build did.

    Attributes:
      outcome: 'built', 'up to date', 'verification failed' or 'too many rejects'.
      shards: all of the data set.
      rows_read, rejected: over all manifests; rejected by code.
      rejects: the first of them, with their places.
      verification: what was verified in this run; None: nothing was.
      seconds: by stage.
    """

    outcome: str = "built"
    shards: tuple[ShardInfo, ...] = ()
    rows_read: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    rejects: list[Reject] = field(default_factory=list)
    verification: VerifyReport | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def count_rejects(self, bad_rows: Sequence[Reject]) -> None:
        """Counts the rejects of all shards, and the lines that are no rows, by code."""
        for shard in self.shards:
            self.rejected.update(dict(shard.rejected))
        self.rejected.update({"bad_row": len(bad_rows)} if bad_rows else {})

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times a stage."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = round(time.monotonic() - begun, 3)


def run_build(config: BuildConfig, engine: Engine) -> BuildReport:
    """Builds a data set, goes on with an unfinished one, or finds that it is up to date.

    Raises:
      ConfigError: the output folder holds something else.
      HeldError: another run holds it.
      PlaceError: the environment failed; nothing was published.
      ReconcileError: a row was lost or counted twice: a bug.
    """
    if output.read_dataset_json(config.output) is not None:
        return _check_finished(config, engine)
    with output.hold_output(config.output):
        if output.read_dataset_json(config.output) is not None:
            raise HeldError(f"another run has just finished {config.output}; run this one again")
        digest = settings_digest(config.record, config.shards)
        mark = output.open_build(config.output, digest, _name_settings(config))
        report = BuildReport()
        bad_rows = _run_job(config, engine, mark, report)
        if config.verify != "none":
            _verify_new(config, engine, mark, report)
        _decide(config, report)
        with report.stage("commit"):
            _write_accounts(config, report)
            if report.outcome == "built":
                _commit(config, report, bad_rows)
            else:
                output.stop_build(config.output, [info.name for info in report.shards], mark)
    return report


def _run_job(
    config: BuildConfig, engine: Engine, mark: BuildMark, report: BuildReport
) -> list[Reject]:
    """Runs the job, takes its accounts, and makes sure that nothing was lost."""
    options = _write_options(config, check_crc=not mark.in_order)
    accounts = os.path.join(config.output, output.ACCOUNTS)
    PROGRESS.begin("prepare")
    with report.stage("build"):
        define = partial(define_build, config=config, options=options, accounts=accounts)
        counters = _run_here(define, config, engine)
    PROGRESS.begin("account")
    report.seconds |= {
        f"build: {stage}": PROGRESS.seconds[stage]
        for stage in JOB_STAGES
        if stage in PROGRESS.seconds
    }
    report.shards = tuple(sorted(_infos(accounts), key=lambda info: info.shard))
    manifests = _manifest_infos(accounts)
    report.rows_read = sum(info.rows for info in manifests)
    if not report.rows_read:
        raise ConfigError(f"there is no row in {', '.join(config.manifests)}")
    bad_rows = [r for r in reports.sorted_rejects(accounts, []) if not r.key]
    report.count_rejects(bad_rows)
    _check_split_names(config, report)
    _reconcile(report, sum(info.bad_rows for info in manifests), counters)
    return bad_rows


def _name_settings(config: BuildConfig) -> dict[str, str]:
    """Returns the settings that decide bytes as text, the number of shards as it was given."""
    settings = reports.describe_settings(config.record, config.shards)
    del settings["digest"]
    given = ", ".join(f"{name or 'each'} {number}" for name, number in config.shards.num_shards)
    settings |= {"payload": config.record.payload, "decoders": decoder_versions()}
    settings["shards"] = given or f"of {config.shards.shard_bytes} bytes"
    return {name: str(value) for name, value in settings.items()}


def _check_split_names(config: BuildConfig, report: BuildReport) -> None:
    """Refuses a number of shards for a split that no row is in: its name is mistyped."""
    splits = {info.shard.split for info in report.shards}
    strangers = [name for name, _ in config.shards.num_shards if name and name not in splits]
    if strangers:
        raise ConfigError(
            f"--num-shards names {', '.join(strangers)}, and no row is in such a split; there "
            f"are {', '.join(sorted(splits))}. Remove {config.output} and give the right names"
        )


def _run_here(
    define: Callable[[beam.Pipeline], None], config: BuildConfig, engine: Engine
) -> dict[str, int]:
    """Runs a build's graph by one of Beam's workers: `WriteToTFRecord` has its own processes.

    They start while Beam prepares the job and the manifests are read.
    """
    if config.resources.workers > 1:
        start_children(config.resources.workers, write_shard.__module__)
    try:
        return engine(define, replace(config.resources, workers=1))
    finally:
        end_children()


def _reconcile(report: BuildReport, bad_rows: int, counters: dict[str, int]) -> None:
    """Rows read = records written + rows rejected, by what was written and by the counters."""
    written = sum(shard.records for shard in report.shards)
    rejected = sum(report.rejected.values())
    found = {
        "rows read": (report.rows_read, counters.get("rows_read", 0)),
        "written + rejected": (
            written + rejected,
            counters.get("rows_written", 0) + counters.get("rows_rejected", 0) + bad_rows,
        ),
    }
    if {report.rows_read} != {number for pair in found.values() for number in pair}:
        raise ReconcileError(f"rows were lost or counted twice (files, counters): {found}")


def _verify_new(config: BuildConfig, engine: Engine, mark: BuildMark, report: BuildReport) -> None:
    """Verifies the shards that have not been verified in this way; drops those that are wrong."""
    how = [config.verify, str(config.sampling.seed)]
    checks = [
        ShardCheck(info.name, info.records, info.size_bytes, info.crc32c, config.shards.seed)
        for info in report.shards
        if mark.verified.get(info.name) != [f"{info.crc32c:08x}", *how]
    ]
    if not checks:
        return
    verify_config = VerifyConfig(
        folder=config.output,
        source_root=config.reading.source_root,
        payload=config.record.payload,
        sampling=config.sampling,
        resources=config.resources,
    )
    with report.stage("verify"):
        found = run_verify(verify_config, choose_shards(checks, config.sampling), engine)
    report.verification = found
    for check in checks:
        if check.name in found.verified:
            mark.verified[check.name] = [f"{check.crc32c:08x}", *how]
        else:
            output.drop_shard(config.output, check.name)
    output.write_mark(config.output, replace(mark, in_order=False))  # should this run be killed


def _decide(config: BuildConfig, report: BuildReport) -> None:
    verification = report.verification
    if verification and (verification.failures or verification.changed):
        report.outcome = "verification failed"
    elif not config.gate.is_passed(sum(report.rejected.values()), report.rows_read):
        report.outcome = "too many rejects"


def _write_accounts(config: BuildConfig, report: BuildReport) -> None:
    """Writes rejects.jsonl and run.json, of a build that stops at the gate as well."""
    accounts = os.path.join(config.output, output.ACCOUNTS)
    listed: Counter[str] = Counter()
    with files.create_file(config.output, reports.REJECTS) as file:
        for reject in reports.sorted_rejects(accounts, report.shards):
            listed[reject.code] += 1
            file.write([reports.format_reject(reject).encode("utf-8", "surrogatepass"), b"\n"])
            if len(report.rejects) < LISTED_REJECTS:
                report.rejects.append(reject)
    if listed != report.rejected:
        raise ReconcileError(f"rejects were lost: {report.rejected} found, {listed} listed")
    run = _describe_run(config, report, _manifest_infos(accounts))
    files.write_file(config.output, reports.RUN, reports.format_json(run))


def _commit(config: BuildConfig, report: BuildReport, bad_rows: Sequence[Reject]) -> None:
    dataset = reports.describe_dataset(config.record, config.shards, report.shards, bad_rows)
    names = [info.name for info in report.shards]
    if PROGRESS.cancelled.is_set():  # and something swallowed the KeyboardInterrupt
        raise KeyboardInterrupt
    output.close_build(config.output, names, reports.format_json(dataset))


def _check_finished(config: BuildConfig, engine: Engine) -> BuildReport:
    """Finds out, writing nothing, whether a finished data set is what a build would make."""
    dataset = output.read_dataset_json(config.output) or {}
    now = reports.describe_settings(config.record, config.shards)
    _refuse_other_settings(config, dataset, now)
    report = BuildReport(outcome="up to date")
    PROGRESS.begin("prepare")
    with files.temporary_folder() as accounts, report.stage("check"):
        options = _write_options(config, check_only=True)
        define = partial(define_build, config=config, options=options, accounts=accounts)
        _run_here(define, config, engine)
        changed = read_account(accounts, CHANGED)
        report.shards = tuple(sorted(_infos(accounts), key=lambda info: info.shard))
        report.rows_read = sum(info.rows for info in _manifest_infos(accounts))
        bad_rows = [r for r in reports.sorted_rejects(accounts, []) if not r.key]
    fresh = reports.describe_dataset(config.record, config.shards, report.shards, bad_rows)
    if changed or fresh != dataset:
        raise ConfigError(
            f"{config.output} holds a finished data set, and {_explain_change(changed, dataset)}; "
            "it is not touched. Give another --output, or remove it"
        )
    if output.read_mark(config.output):  # the run that finished it was killed in its last step
        with output.hold_output(config.output):
            output.clear_build(config.output)
    report.count_rejects(bad_rows)
    return report


def _explain_change(changed: Sequence[object], dataset: dict[str, object]) -> str:
    """Says why a finished data set is not what the build would make now."""
    splits = dataset["splits"]
    assert isinstance(splits, dict)
    then = {name: len(split["shards"]) for name, split in splits.items()}
    now = {shard.split: shard.num_shards for shard in changed if isinstance(shard, ShardId)}
    other = [
        f"{name} has {then.get(name, 0)}, {now[name]} now"
        for name in sorted(now)
        if then.get(name) != now[name]
    ]
    if other:
        return f"its number of shards would be another one ({'; '.join(other)})"
    return (
        "its rows, its sources (size or time of change) or its files have changed since: "
        f"{len(changed)} of its shards would be built anew"
    )


def _refuse_other_settings(
    config: BuildConfig, dataset: dict[str, object], now: dict[str, object]
) -> None:
    then = dataset.get("settings")
    known = then if isinstance(then, dict) else {}
    differing = [name for name in now if name != "digest" and known.get(name) != now[name]]
    if dataset.get("payload") != config.record.payload:
        differing.append("payload")
    if known.get("digest") != now["digest"]:
        raise ConfigError(
            f"{config.output} holds a finished data set with other settings "
            f"({', '.join(differing) or 'the decoders: see dataset.json'}); it is not touched. "
            "Give another --output, or remove it"
        )


def _write_options(
    config: BuildConfig, *, check_crc: bool = False, check_only: bool = False
) -> WriteOptions:
    return WriteOptions(
        source_root=config.reading.source_root,
        output=config.output,
        settings=config.record,
        digest=record_digest(config.record, config.shards),
        check_crc=check_crc,
        check_only=check_only,
    )


def _infos(accounts: str) -> list[ShardInfo]:
    return [item for item in read_account(accounts, SHARDS) if isinstance(item, ShardInfo)]


def _manifest_infos(accounts: str) -> list[ManifestInfo]:
    found = read_account(accounts, MANIFESTS)
    return [item for item in found if isinstance(item, ManifestInfo)]


def _describe_run(
    config: BuildConfig, report: BuildReport, manifests: Sequence[ManifestInfo]
) -> dict[str, object]:
    """Returns the content of run.json: what may differ from run to run."""
    verification = report.verification
    return {
        "outcome": report.outcome,
        "ended": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "source_root": config.reading.source_root,
        "runner": config.resources.runner,
        "threads": config.resources.threads,
        "workers": config.resources.workers,
        "seconds": dict(report.seconds),
        "shards": {
            "built": sum(not shard.reused for shard in report.shards),
            "reused": sum(shard.reused for shard in report.shards),
        },
        "verification": {
            "mode": config.verify,
            "records": verification.records if verification else 0,
            "compared": verification.compared if verification else 0,
            "failures": len(verification.failures) if verification else 0,
        },
        "manifests": [
            {"path": info.path, "sha256": info.sha256, "rows": info.rows}
            for info in sorted(manifests, key=lambda info: info.path)
        ],
        "rejects": [
            {"manifest": r.manifest, "line": r.line, "code": r.code, "key": r.key}
            for r in report.rejects
        ],
        "rejects_left_out": sum(report.rejected.values()) - len(report.rejects),
    }
