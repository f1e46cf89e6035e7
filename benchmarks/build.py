"""Measures `pairshard build` side by side with its rivals, on the same generated pairs.

    python benchmarks/build.py --output table.md
    python benchmarks/build.py --figures whole memory start
    python benchmarks/build.py --only raw pool --pairs 1000 --repetitions 3

The rows take turns (A B C A B C …), each a command of its own, measured from outside. The rivals
are explained in rivals.py. Each rival's records are compared with the files, on a few pairs,
before anything is timed.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from measuring import (
    MEMORY_IS,
    Measured,
    WarmMemory,
    describe_machine,
    format_median,
    format_table,
    run_measured,
)

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
NUM_SHARDS = 16
CHECKED_PAIRS = 100
RECORD_BYTES = 480 * 360 * 4 + 100
MIB = 1 << 20
KEEP_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(64 * MIB), "MALLOC_TRIM_THRESHOLD_": str(512 * MIB)}


@dataclass(frozen=True)
class Contender:
    """One row of the table: our command with options, or a rival by its name."""

    title: str
    options: tuple[str, ...] = ()
    rival: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    writes_raw: bool = True
    slow: bool = False


def ours(title: str, *options: str, raw: bool = True) -> Contender:
    return Contender(title, options=options, writes_raw=raw)


CONTENDERS = {
    "raw": ours("this build, raw", "--payload", "raw", "--verify", "none"),
    "encoded": ours("this build, encoded", "--payload", "encoded", "--verify", "none", raw=False),
    "verified": ours("this build, raw, default verification", "--payload", "raw"),
    "threads": ours(
        "this build, raw, threads alone (`--workers 1`)", "--verify", "none", "--workers", "1"
    ),
    "pool": Contender("process pool by hand", rival="pool"),
    "pool-malloc": Contender(
        "process pool, malloc told by environment to keep its memory",
        rival="pool",
        environment=tuple(KEEP_MALLOC.items()),
    ),
    "loop": Contender("one process by hand", rival="loop"),
    "obvious": Contender("the obvious Beam pipeline", rival="obvious", slow=True),
    "floor": Contender("decoding alone (floor)", rival="floor", writes_raw=False),
}


@dataclass(frozen=True)
class Run:
    """One run of one contender."""

    pairs: int
    running_s: float
    wall_s: float
    peak_bytes: int

    @property
    def rate(self) -> float:
        """Pairs a second, once running."""
        return self.pairs / self.running_s

    @property
    def whole_rate(self) -> float:
        """Pairs a second of the whole command, start-up and imports included."""
        return self.pairs / self.wall_s


@dataclass(frozen=True)
class Bench:
    """Where things are, and how to measure."""

    drawn: Path
    scratch: Path
    warm: bool

    @property
    def out(self) -> Path:
        return self.scratch / "out"

    def manifest(self, pairs: int) -> Path:
        """A manifest of the first so many pairs, beside the pictures."""
        path = self.drawn / f"first-{pairs}.csv"
        with (self.drawn / "pairs.csv").open(encoding="utf-8", newline="") as stream:
            rows = list(csv.reader(stream))[: pairs + 1]
        if len(rows) != pairs + 1:
            raise ValueError(f"{self.drawn} has {len(rows) - 1} pairs, {pairs} are wanted")
        with path.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows(rows)
        return path

    def measure(self, contender: Contender, pairs: int) -> Run:
        """Runs a contender once and removes what it wrote."""
        command = make_command(contender, self.manifest(pairs), self.out)
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **dict(contender.environment)}
        with self.warmed(contender, pairs), self.removing_output():
            measured = run_measured(command, cwd=REPOSITORY, environment=environment)
            running_s = read_running_seconds(contender, measured, self.out)
        return Run(pairs, running_s, measured.wall_s, measured.peak_bytes)

    @contextlib.contextmanager
    def removing_output(self) -> Iterator[None]:
        try:
            yield
        finally:
            shutil.rmtree(self.out, ignore_errors=True)

    @contextlib.contextmanager
    def warmed(self, contender: Contender, pairs: int) -> Iterator[None]:
        """Keeps memory warm for what the contender will need; see WarmMemory."""
        if not self.warm:
            yield
            return
        shuffled = 4 if contender.slow else 1  # the obvious pipeline holds its records so often
        size_bytes = shuffled * pairs * RECORD_BYTES * contender.writes_raw + 1024 * MIB
        memory = WarmMemory(self.scratch, size_bytes)
        memory.start()
        try:
            yield
        finally:
            memory.finish()

    def check_rival(self, contender: Contender) -> None:
        """Has a rival write a few pairs, and compares every record."""
        manifest = self.manifest(CHECKED_PAIRS)
        check = [sys.executable, str(HERE / "rivals.py"), "check", str(manifest)]
        with self.removing_output():
            run_measured(make_command(contender, manifest, self.out))
            run_measured([*check, "--output", str(self.out)])


def make_command(contender: Contender, manifest: Path, out: Path) -> list[str]:
    if contender.rival:
        program = [str(HERE / "rivals.py"), contender.rival]
    else:
        program = ["-m", "launch", "build"]
    settings = [str(manifest), "--output", str(out), "--num-shards", str(NUM_SHARDS)]
    quiet = [] if contender.rival else ["--quiet"]
    return [sys.executable, *program, *settings, *contender.options, *quiet]


def read_running_seconds(contender: Contender, measured: Measured, out: Path) -> float:
    """Seconds without start-up: the rival's own word, or our run.json's.

    Ours are from the first row that is read to the last that is written, and verification.
    """
    if contender.rival:
        return json.loads(measured.stdout.splitlines()[-1])["seconds"]
    seconds = json.loads((out / "run.json").read_text(encoding="utf-8"))["seconds"]
    return sum(seconds.get(stage, 0.0) for stage in ("build: read", "build: write", "verify"))


def take_turns(
    bench: Bench, names: Iterable[str], pairs: int, *, repetitions: int, slow: tuple[int, int]
) -> dict[str, list[Run]]:
    """Every contender's runs; `slow` is how often, and with how many pairs, a slow one may run."""
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for repetition in range(repetitions):
        for name, done in runs.items():
            contender = CONTENDERS[name]
            if contender.slow and repetition >= slow[0]:
                continue
            run = bench.measure(contender, min(pairs, slow[1]) if contender.slow else pairs)
            done.append(run)
            note(f"{repetition + 1}. {name}: {run.rate:.0f} pairs/s, {run.wall_s:.1f} s")
    return runs


def format_ratio(runs: list[Run], others: list[Run] | None) -> str:
    """How many times the others' rate, repetition by repetition."""
    if not others:
        return "–"
    pairs = zip(runs, others, strict=False)  # a slow one ran less often
    return format_median((run.rate / other.rate for run, other in pairs), 2)


def describe_rows(results: dict[str, list[Run]]) -> str:
    """The table of all contenders."""
    header = ("", "runs × pairs", "pairs/s once running", "pairs/s whole command")
    header += ("× pool", "× obvious", "× floor", "peak memory, MiB")
    rows = []
    for name, runs in results.items():
        rows.append(
            (
                CONTENDERS[name].title,
                f"{len(runs)} × {runs[0].pairs:,}",
                format_median((run.rate for run in runs), 0),
                format_median((run.whole_rate for run in runs), 0),
                *(format_ratio(runs, results.get(base)) for base in ("pool", "obvious", "floor")),
                format_median((run.peak_bytes / MIB for run in runs), 0),
            )
        )
    return format_table(header, rows)


def measure_table(bench: Bench, options: argparse.Namespace) -> str:
    names = options.only or list(CONTENDERS)
    for name in names:
        if CONTENDERS[name].rival and CONTENDERS[name].writes_raw:
            bench.check_rival(CONTENDERS[name])
            note(f"checked: {name} writes the right records")
    slow = (options.slow_repetitions, options.slow_pairs)
    results = take_turns(bench, names, options.pairs, repetitions=options.repetitions, slow=slow)
    return (
        f"## Side by side, {options.pairs:,} pairs\n\n{describe_rows(results)}\n"
        "Median (lowest–highest). Other work and the host make every machine noisy: compare "
        "medians, and mind the spread. The rows took turns, and each ratio is the median of the "
        "ratios within each turn, of rates once running. The obvious pipeline is slow and keeps "
        "all it shuffles in memory, so it ran less often and on fewer pairs. The floor decodes "
        "and writes nothing; its start-up and memory are those of the rivals' common script, which "
        "loads TensorFlow. 'Once running' of this build is from the first row read to the last one "
        "written (and, in the verified row, its verification).\n"
    )


def measure_whole_command(bench: Bench, options: argparse.Namespace) -> str:
    """Our whole command against the pool's, on many pairs."""
    pairs = options.many_pairs
    results = take_turns(
        bench, ("raw", "pool"), pairs, repetitions=options.repetitions, slow=(0, 0)
    )
    seconds = {name: [run.wall_s for run in runs] for name, runs in results.items()}
    ratios = [pool / raw for raw, pool in zip(seconds["raw"], seconds["pool"], strict=True)]
    rows = [(CONTENDERS[name].title, format_median(values, 1)) for name, values in seconds.items()]
    rows.append(("times as fast", format_median(ratios, 2)))
    table = format_table(("", "seconds"), rows)
    return f"## The whole command, {pairs:,} pairs\n\n{table}"


def measure_memory(bench: Bench, options: argparse.Namespace) -> str:
    """Peak memory with a tenth of the pairs and with all."""
    few, many = options.many_pairs // 10, options.many_pairs
    rows = []
    for name in ("raw", "encoded"):
        peaks: dict[int, list[float]] = {few: [], many: []}
        for _ in range(options.repetitions):
            for pairs, values in peaks.items():
                values.append(bench.measure(CONTENDERS[name], pairs).peak_bytes / MIB)
        ratio = statistics.median(peaks[many]) / statistics.median(peaks[few])
        cells = (format_median(values, 0) for values in peaks.values())
        rows.append((CONTENDERS[name].title, *cells, f"{ratio:.2f}"))
    header = ("peak memory, MiB", f"{few:,} pairs", f"{many:,} pairs", "ratio of medians")
    return f"## Memory\n\n{format_table(header, rows)}"


def measure_start(bench: Bench, options: argparse.Namespace) -> str:
    """Seconds of --help, and of a build of ten pairs."""
    show_help = [sys.executable, "-m", "launch", "--help"]
    helps = [run_measured(show_help, cwd=REPOSITORY).wall_s for _ in range(options.repetitions)]
    builds = [bench.measure(CONTENDERS["raw"], 10).wall_s for _ in range(options.repetitions)]
    rows = [
        ("`--help`", format_median(helps, 2)),
        ("build of 10 pairs, `--verify none`", format_median(builds, 2)),
    ]
    return f"## Starting\n\n{format_table(('', 'seconds'), rows)}"


FIGURES = {
    "table": measure_table,
    "whole": measure_whole_command,
    "memory": measure_memory,
    "start": measure_start,
}


def note(text: str) -> None:
    """Says how far things are, beside the table."""
    print(text, file=sys.stderr, flush=True)


def count_pairs_needed(options: argparse.Namespace) -> int:
    many = {"whole", "memory"} & set(options.figures)
    return max(options.pairs, CHECKED_PAIRS, options.many_pairs if many else 0)


def draw(folder: Path, pairs: int) -> None:
    """Draws the pairs, unless the folder has enough of them from another time."""
    manifest = folder / "pairs.csv"
    if manifest.exists() and len(manifest.read_text(encoding="utf-8").splitlines()) > pairs:
        return
    script = str(REPOSITORY / "examples" / "draw_pairs.py")
    command = [sys.executable, script, str(folder), "--pairs", str(pairs)]
    subprocess.run(command, check=True, stdout=sys.stderr)


def describe_setting(options: argparse.Namespace) -> str:
    memory = "cold" if options.cold else "kept warm (`WarmMemory` in benchmarks/measuring.py)"
    return (
        f"Measured on: {describe_machine()}. Pairs of 480×360, JPEG quality 95 with palette PNG "
        f"masks (examples/draw_pairs.py), to {NUM_SHARDS} shards on tmpfs; free memory {memory}. "
        f"{MEMORY_IS}\n"
    )


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    add = parser.add_argument
    add("--figures", nargs="+", choices=FIGURES, default=["table"], help="default: table")
    add("--only", nargs="+", choices=CONTENDERS, help="rows of the table (default: all)")
    add("--pairs", type=int, default=4206, help="of the table (default %(default)s)")
    add("--many-pairs", type=int, default=7000, help="of whole and memory (default %(default)s)")
    add("--repetitions", type=int, default=5, help="default %(default)s")
    add("--slow-pairs", type=int, default=2103, help="of the obvious row (default %(default)s)")
    add("--slow-repetitions", type=int, default=2, help="of the obvious row (default %(default)s)")
    add("--scratch", type=Path, default=Path("/dev/shm"), help="default %(default)s")
    add("--drawn", type=Path, help="keep the pictures here, or take them from here")
    add("--cold", action="store_true", help="don't keep the memory warm")
    add("--output", type=Path, metavar="FILE", help="write the tables here too")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    options = parse_arguments(argv)
    with tempfile.TemporaryDirectory(prefix="pairshard-bench-", dir=options.scratch) as scratch:
        drawn = options.drawn or Path(scratch) / "drawn"
        draw(drawn, count_pairs_needed(options))
        bench = Bench(drawn.resolve(), Path(scratch), warm=not options.cold)
        tables = [FIGURES[name](bench, options) for name in options.figures]
    report = "\n".join([describe_setting(options), *tables])
    print(report)
    if options.output:
        options.output.write_text(report, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
