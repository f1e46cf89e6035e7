"""Runs a command and measures it from outside: wall time, and the memory of its process tree.

Shared by the benchmarks. Linux only: memory is read from /proc.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

SAMPLE_EVERY_S = 0.1
SAMPLING_SHARE = 0.01  # of one core's time: adding up the pages of a big process takes long

MEMORY_IS = (
    "Peak memory is the sum of the proportional set sizes (PSS: pages shared by n processes count "
    "1/n in each) of the command's whole process tree, read from /proc every 0.1 s, less often "
    "where reading takes more than 1 % of the time; where one process's own high-water mark "
    "(ru_maxrss) is higher than every sample, it is taken. Files on tmpfs don't count."
)


@dataclass(frozen=True)
class Measured:
    """What one run of a command took."""

    stdout: str
    wall_s: float
    peak_bytes: int


class CommandFailed(Exception):
    """A measured command ended with another status than 0."""


def list_process_tree(pid: int) -> list[int]:
    """The process and all its descendants; those that end meanwhile are left out."""
    tree = [pid]
    for parent in tree:
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
            for task in tasks:
                tree += map(int, Path(f"/proc/{parent}/task/{task}/children").read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue
    return tree


def read_pss_bytes(pid: int) -> int:
    """A process's proportional set size, or 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


class MemorySampler(threading.Thread):
    """Keeps the highest memory that a process tree was seen to have."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._pid = pid
        self._ended = threading.Event()

    def run(self) -> None:
        pause_s = 0.0
        while not self._ended.wait(pause_s):
            started = time.thread_time()
            total = sum(map(read_pss_bytes, list_process_tree(self._pid)))
            self.peak_bytes = max(self.peak_bytes, total)
            pause_s = max(SAMPLE_EVERY_S, (time.thread_time() - started) / SAMPLING_SHARE)

    def finish(self) -> int:
        self._ended.set()
        self.join()
        return self.peak_bytes


class WarmMemory(threading.Thread):
    """Holds memory, and lets go of it as fast as the measured command takes memory up.

    Many virtual machines hand free pages back to their host within a second or two, and touching
    such a page again costs several times a page's usual price: on tmpfs, 400 to 800 MiB/s where
    pages just freed take 2,500 MiB/s. Whoever writes after a pause then pays for the pause. So a
    file on tmpfs keeps as many pages as the command will need, and is cut at the rate at which the
    machine's free memory falls; the kernel gives out first what was freed last.
    """

    EVERY_S = 0.01
    STEP_BYTES = 16 << 20

    def __init__(self, folder: Path, size_bytes: int) -> None:
        super().__init__(daemon=True)
        self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self._left_bytes = fill_file(self._file, size_bytes, self.STEP_BYTES)
        self._free_bytes = read_free_bytes()
        self._ended = threading.Event()

    def run(self) -> None:
        while self._left_bytes and not self._ended.wait(self.EVERY_S):
            taken = self._free_bytes - read_free_bytes()
            if taken > self.STEP_BYTES:
                self._left_bytes = max(0, self._left_bytes - taken)
                self._file.truncate(self._left_bytes)

    def finish(self) -> None:
        """Lets go of what is left."""
        self._ended.set()
        self.join()
        self._file.close()


def fill_file(file: IO[bytes], size_bytes: int, step_bytes: int) -> int:
    """Writes at least so many bytes, and gives their number."""
    block = bytes(step_bytes)
    blocks = -(-size_bytes // step_bytes)
    for _ in range(blocks):
        file.write(block)
    return blocks * step_bytes


def read_free_bytes() -> int:
    """The machine's memory that holds nothing, not even cached files."""
    return int(read_field("/proc/meminfo", "MemFree").split()[0]) * 1024


def run_measured(
    command: Sequence[str], *, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> Measured:
    """Runs a command to its end.

    Raises:
      CommandFailed: with the end of what it wrote to its standard error.
    """
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=cwd, env=environment, stdout=stdout, stderr=stderr, text=True
        )
        sampler = MemorySampler(process.pid)
        sampler.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        wall_s = time.perf_counter() - started
        sampled_bytes = sampler.finish()
        process.returncode = os.waitstatus_to_exitcode(status)
        stdout.seek(0)
        stderr.seek(0)
        if process.returncode:
            tail = "\n".join(stderr.read().splitlines()[-30:])
            raise CommandFailed(f"exit {process.returncode}: {' '.join(command)}\n{tail}")
        return Measured(stdout.read(), wall_s, max(sampled_bytes, usage.ru_maxrss * 1024))


def format_median(values: Iterable[float], digits: int) -> str:
    """'median (lowest–highest)', or the only value alone."""
    values = sorted(values)
    if not values:
        return "–"
    median = f"{statistics.median(values):,.{digits}f}"
    if len(values) == 1:
        return median
    return f"{median} ({values[0]:,.{digits}f}–{values[-1]:,.{digits}f})"


def format_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are set flush right."""
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [header, rule, *rows])


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def describe_machine() -> str:
    """Processor, cores, memory and the versions that matter, in one line."""
    cpu = read_field("/proc/cpuinfo", "model name")
    memory_gib = int(read_field("/proc/meminfo", "MemTotal").split()[0]) / 2**20
    packages = ("apache-beam", "tensorflow", "Pillow", "numpy")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return (
        f"{cpu}, {count_cores()} cores, {memory_gib:.0f} GiB of memory, "
        f"Linux {platform.release()}, Python {platform.python_version()}, {versions}"
    )


def read_field(path: str, name: str) -> str:
    """The value of the first line 'name : value' in one of /proc's files, or 'unknown'."""
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown 0"
