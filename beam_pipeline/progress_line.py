"""The progress that a user sees: a bar on a terminal, plain lines where there is none."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tqdm import tqdm

from transforms.core.progress import PROGRESS

BAR_SECONDS = 0.2
LINE_SECONDS = 5.0


@contextmanager
def show_progress(*, quiet: bool) -> Iterator[None]:
    """Shows `PROGRESS` on standard error until the block ends."""
    if quiet:
        yield
        return
    ended = threading.Event()
    target = _draw_bar if sys.stderr.isatty() else _print_lines
    thread = threading.Thread(target=_show, args=(target, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _show(target: Callable[[threading.Event], None], ended: threading.Event) -> None:
    with suppress(OSError):  # nobody reads it any more
        target(ended)


def _draw_bar(ended: threading.Event) -> None:
    bar: tqdm[None] | None = None
    stage = ""
    while not ended.wait(BAR_SECONDS):
        if PROGRESS.stage != stage or bar is None:
            if bar is not None:
                bar.close()
            stage = PROGRESS.stage
            bar = tqdm(desc=stage, unit=" rows", file=sys.stderr, leave=False)
        bar.total = PROGRESS.total or None
        bar.n = PROGRESS.rows
        if stage == "verify":  # records, none of which is rejected
            bar.unit = " records"
            bar.refresh()
        else:
            bar.set_postfix(rejects=PROGRESS.rejected, refresh=True)
    if bar is not None:
        bar.close()


def _print_lines(ended: threading.Event) -> None:
    stage, begun = "", time.monotonic()
    while not ended.wait(LINE_SECONDS):
        if PROGRESS.stage != stage:
            stage, begun = PROGRESS.stage, time.monotonic() - LINE_SECONDS
        seconds = time.monotonic() - begun
        print(format_line(stage, seconds), file=sys.stderr, flush=True)


def format_line(stage: str, seconds: float) -> str:
    """Returns one line: rows, rate, rejects and time left, as far as they are known."""
    rows, total = PROGRESS.rows, PROGRESS.total
    rate = rows / seconds if seconds else 0.0
    of = f" of {total:,}" if total else ""
    left = f", {(total - rows) / rate:,.0f} s left" if total and rate else ""
    what = "records" if stage == "verify" else "rows"
    rejects = "" if stage == "verify" else f", {PROGRESS.rejected:,} rejects"
    return f"{stage}: {rows:,}{of} {what}, {rate:,.0f} {what}/s{rejects}{left}"
