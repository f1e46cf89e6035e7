"""The exit status of every command, and what is printed beside it."""

from __future__ import annotations

import re
import sys
import traceback

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


def explain_error(error: BaseException) -> int:
    """Prints what an exception means for the user, and returns the exit status.

    An error with a meaning gets one clear message; anything else is a bug and shows its
    traceback.
    """
    found = find_cause(error)
    if found is not None:
        status, message = found
        print(f"pairshard: {message}", file=sys.stderr)
        if status == PLACE_FAILED:
            print("pairshard: trying the same command again is safe", file=sys.stderr)
        return status
    traceback.print_exception(error)
    print(
        "pairshard: this is a bug in pairshard; please report it with the lines above",
        file=sys.stderr,
    )
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
    return None


def _strip(message: str) -> str:
    """Drops what Beam adds to a message."""
    return re.sub(r" \[while running '.*", "", message)
