"""The exit status of every command, and what is printed beside it.

Printing never decides the status: a stream may be closed, full, of a small alphabet, or its
reader may have gone.
"""

from __future__ import annotations

import io
import os
import re
import sys
import traceback
from typing import TextIO

from transforms.core.errors import ConfigError, HeldError, PlaceError

DONE = 0
VERIFICATION_FAILED = 1
WRONG_USE = 2
TOO_MANY_REJECTS = 3
TOO_MUCH_CHANGE = 4
PLACE_FAILED = 5
HELD = 6
BUG = 70
INTERRUPTED = 130

_STATUSES: dict[type[Exception], int] = {
    ConfigError: WRONG_USE,
    PlaceError: PLACE_FAILED,
    HeldError: HELD,
}

# MemoryError, numpy's _ArrayMemoryError, pyarrow's ArrowMemoryError: as a line of a traceback
_MEMORY_LINE = re.compile(r"^(?:RuntimeError: )?(?:\w+\.)*\w*MemoryError\b:? ?(.*)", re.MULTILINE)
_LESS_MEMORY = (
    "--threads 1 and --workers 1 need less, --max-pixels of a build rejects large pictures"
)


def explain_error(error: BaseException) -> int:
    """Prints what an exception means for the user, and returns the exit status.

    An error with a meaning gets one clear message; anything else is a bug and shows its
    traceback.
    """
    found = find_cause(error)
    if found is not None:
        status, message = found
        say(f"pairshard: {message}")
        if status == PLACE_FAILED:
            say("pairshard: trying the same command again is safe")
        return status
    say("".join(traceback.format_exception(error)).rstrip("\n"))
    say("pairshard: this is a bug in pairshard; please report it with the lines above")
    return BUG


def find_cause(error: BaseException) -> tuple[int, str] | None:
    """Finds the error with a meaning that is behind an exception.

    A runner hands on a worker's exception as text: the last line of its traceback, which
    names our class, is all there is.

    Returns:
      (exit status, message), or None for a bug.
    """
    for kind, status in _STATUSES.items():
        if isinstance(error, kind):
            return status, _strip(str(error))
    text = str(error)
    for kind, status in _STATUSES.items():
        name = re.escape(f"{kind.__module__}.{kind.__qualname__}: ")
        if found := re.findall(rf"^(?:RuntimeError: )?{name}(.+)", text, re.MULTILINE):
            return status, _strip(found[-1])
    if isinstance(error, MemoryError):
        return PLACE_FAILED, _explain_memory(_strip(text))
    if found := _MEMORY_LINE.findall(text):
        return PLACE_FAILED, _explain_memory(_strip(found[-1]))
    return None


def open_streams() -> None:
    """Makes standard output and error such that any text can be printed there."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # closed (`2>&-`): the next file opened would take its number and its text
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def settle_streams() -> None:
    """Prints what is waiting; else Python does at its end, and a failure is exit status 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            mute(stream)


def say(text: str) -> None:
    """Prints a line on standard error, where somebody reads it."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        mute(sys.stderr)


def mute(stream: TextIO) -> None:
    """Lets go into nothing what is waiting to be printed, and what will be."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, stream.fileno())
    os.close(descriptor)


def _explain_memory(found: str) -> str:
    return f"out of memory{f' ({found})' if found else ''}; {_LESS_MEMORY}"


def _strip(message: str) -> str:
    """Drops what Beam adds to a message."""
    return re.sub(r" ?\[while running '.*", "", message)
