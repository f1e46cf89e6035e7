"""Makes memory cheap for work that takes and frees half a megabyte a thousand times a second."""

from __future__ import annotations

import ctypes
import gc
import sys

# malloc.h of glibc
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_MMAP_THRESHOLD_BYTES = 32 << 20  # the most that glibc takes
_TRIM_THRESHOLD_BYTES = 256 << 20
_ARENAS = 2  # each keeps freed memory of its own; one per thread is the default


def spare_collector() -> None:
    """Takes what is loaded so far out of the garbage collector's sight.

    Beam and what it imports are a million objects that stay; looking at them again and again
    costs a build some 3 % of its time.
    """
    gc.collect()
    gc.freeze()


def keep_freed_memory() -> None:
    """Tells glibc not to hand half-megabyte buffers back to the kernel after each picture.

    Otherwise each buffer is mapped, zeroed page by page and unmapped anew, which costs a
    build in the raw payload some 5 % of its time. Where the C library is another one, nothing
    is done.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES)
        mallopt(_M_ARENA_MAX, _ARENAS)
