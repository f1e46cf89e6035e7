"""What this process has done so far, for the driver's progress line.

Counting goes through here and not through the pipeline, because a runner shows counters only
at its end. On a cluster nobody reads the workers' numbers: the job's own counters serve there.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field


@dataclass(slots=True)
class Progress:
    """Counts of one process; safe to be added to from several threads.

    Attributes:
      stage: what is being done, in the user's words.
      total: rows to be done in this stage; 0 while it is not known.
      rows: rows done.
      rejected: rows of them that were rejected.
      seconds: that each ended stage took.
      cancelled: set when the run is to end; rows that are not begun are not begun.
    """

    stage: str = ""
    total: int = 0
    rows: int = 0
    rejected: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    cancelled: threading.Event = field(default_factory=threading.Event)
    _begun: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, stage: str, total: int = 0) -> None:
        """Ends the stage that is under way, and starts another one at zero rows."""
        with self._lock:
            self._begin(stage, total)

    def begin_read(self) -> None:
        """Starts to read rows, unless that has been started already."""
        with self._lock:
            if self.stage == "prepare":
                self._begin("read", 0)

    def begin_write(self) -> None:
        """Starts to write the rows that were read, unless that has been started already."""
        with self._lock:
            if self.stage == "read":
                self._begin("write", self.rows)

    def add(self, rows: int, rejected: int = 0) -> None:
        """Counts rows.

        Raises:
          KeyboardInterrupt: the run was cancelled meanwhile.
        """
        if self.cancelled.is_set():
            raise KeyboardInterrupt
        with self._lock:
            self.rows += rows
            self.rejected += rejected

    def _begin(self, stage: str, total: int) -> None:
        now = time.monotonic()
        self.seconds[self.stage] = round(now - self._begun, 3)
        self.stage, self.total, self.rows, self.rejected = stage, total, 0, 0
        self._begun = now


PROGRESS = Progress()
"""The one of this process."""
