"""What is printed at the end: tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from beam_pipeline.build import BuildReport
from beam_pipeline.config import BuildConfig
from beam_pipeline.tables import format_bytes, format_table
from beam_pipeline.verify import VerifyReport
from transforms.core.rows import Reject
from transforms.core.verifying import Failure

LISTED = 20
LISTED_PER_CODE = 5


def format_build(config: BuildConfig, report: BuildReport) -> str:
    """Returns the summary of a build."""
    rejected = sum(report.rejected.values())
    written = sum(shard.records for shard in report.shards)
    lines = [f"{config.output}: {report.outcome}"]
    lines += format_table(
        ("split", "shards", "reused", "records", "bytes"), list(_split_rows(report))
    )
    lines.append(f"rows: {report.rows_read:,} read = {written:,} written + {rejected:,} rejected")
    lines += [f"  {code}: {number:,}" for code, number in sorted(report.rejected.items())]
    lines += format_rejects(report.rejects, rejected)
    if rejected:  # messages hold no absolute path
        lines.append(f"source root: {config.reading.source_root}")
    if report.verification:
        lines += format_verification(report.verification)
    times = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in report.seconds.items())
    return "\n".join([*lines, f"time: {times}", *_what_next(config, report, rejected)])


def format_rejects(rejects: Sequence[Reject], total: int) -> list[str]:
    """Returns the first rejects of each code with the places where they stood."""
    lines: list[str] = []
    listed: Counter[str] = Counter()
    for reject in rejects:
        listed[reject.code] += 1
        if listed[reject.code] <= LISTED_PER_CODE and len(lines) < LISTED:
            place = f"{reject.manifest}:{reject.line}"
            lines.append(f"  {place}: {reject.code}: {reject.message}")
    if total > len(lines):
        more = f"… and {total - len(lines):,} more" if lines else "what was wrong with each"
        lines.append(f"  {more}: in rejects.jsonl")
    return lines


def format_verification(report: VerifyReport) -> list[str]:
    """Returns what a verification found, the first failures by name."""
    lines = [
        f"verified: {report.shards:,} shards, {report.records:,} records read back, "
        f"{report.compared:,} compared with their sources, {len(report.failures):,} wrong"
        + (f", {len(report.changed):,} of another source now" if report.changed else "")
    ]
    lines += format_failures(report.failures, "wrong")
    return lines + format_failures(report.changed, "source changed")


def format_failures(failures: Sequence[Failure], word: str, most: int | None = LISTED) -> list[str]:
    """Returns a line per failure: shard, offset, key and what differs."""
    lines = []
    for failure in failures[:most]:
        place = f" at {failure.offset}" if failure.offset >= 0 else ""
        key = f" ({failure.key})" if failure.key else ""
        lines.append(f"  {word}: {failure.shard}{place}{key}: {failure.what}")
    if len(failures) > len(lines):
        lines.append(
            f"  … and {len(failures) - len(lines):,} more; verify --report FILE lists them all"
        )
    return lines


def _split_rows(report: BuildReport) -> Iterable[tuple[str, ...]]:
    for name in sorted({info.shard.split for info in report.shards}):
        own = [info for info in report.shards if info.shard.split == name]
        yield (
            name,
            f"{len(own):,}",
            f"{sum(info.reused for info in own):,}",
            f"{sum(info.records for info in own):,}",
            format_bytes(sum(info.size_bytes for info in own)),
        )


def _what_next(config: BuildConfig, report: BuildReport, rejected: int) -> list[str]:
    if report.outcome == "too many rejects" and rejected == report.rows_read:
        return [
            f"not committed: {rejected:,} rows were rejected, which is all. Are the source root, "
            "the order of the manifest's columns and --classes right?"
        ]
    if report.outcome == "too many rejects":
        return [
            f"not committed: {rejected:,} rows were rejected, --max-rejects is {config.gate}. "
            "Mend the files and run the same command again (finished shards are kept), or "
            f"accept them with --max-rejects {rejected}"
        ]
    if report.outcome == "verification failed":
        return [
            "not committed: what was written is not what the sources say. Run the same command "
            "again: the shards named above are built anew"
        ]
    return []
