"""A process of its own for work that must not share this one's lock or its memory.

The build's `--workers` and verification (TensorFlow costs seconds and half a gigabyte to
import) both run so, on every runner. The child ends when its parent does, however that ends:
its standard input is closed then.
"""

from __future__ import annotations

import importlib
import os
import pickle
import queue
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from transforms.core.errors import ConfigError, DataError, PlaceError

PARENT_POLL_SECONDS = 0.2
_BOOTSTRAP = (
    "import sys; module, parent, *sys.path = sys.argv[1:]; "
    "from transforms.core import child; child.serve(module, int(parent))"
)
_SIZE = struct.Struct("<Q")
_NOTE, _DONE, _FAILED = "note", "done", "failed"


class ChildError(Exception):
    """A bug in the child; the message is the child's traceback."""


class Child:
    """A process that answers calls, one at a time.

    Args:
      module: that it imports at once, while it waits for its first call; '' for none.
    """

    def __init__(self, module: str = "") -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        try:
            self._process = subprocess.Popen(
                _command(module),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=os.environ | {"PYTHONSAFEPATH": "1"},
            )
        except OSError as error:  # no memory, too many processes
            self._stderr.close()
            raise PlaceError(f"a worker process can't be started: {error.strerror}") from error

    def call(
        self,
        function: Callable[..., object],
        *args: object,
        on_note: Callable[[object], None] = lambda note: None,
    ) -> object:
        """Runs a module's function in the child and returns what it returns.

        Args:
          function: takes `args` and then a callable that sends notes here.
          args: must pickle.
          on_note: gets each note while the function runs.

        Raises:
          PlaceError: the child was killed (memory?), or raised one itself.
          DataError, ConfigError, MemoryError: the function raised it.
          ChildError: the function raised anything else.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        try:
            _send(stdin, (function.__module__, function.__qualname__, args))
            while True:
                word, value = _receive(stdout)
                if word == _DONE:
                    return value
                if word == _FAILED:
                    raise value
                on_note(value)
        except (EOFError, BrokenPipeError) as error:
            raise PlaceError(self._obituary()) from error

    def close(self) -> None:
        """Ends the child."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._stderr.close()

    def _obituary(self) -> str:
        status = self._process.wait()
        self._stderr.seek(0)
        last = self._stderr.read().decode(errors="replace").strip().splitlines()[-5:]
        how = f"signal {-status} (out of memory?)" if status < 0 else f"exit status {status}"
        return " | ".join([f"a worker process ended by {how}; its last words:", *last])


class ChildPool:
    """Some children, each lent to one caller at a time.

    A child takes a third of a second to start. Those that `start_children` started before the
    pool was needed are taken first.

    Args:
      size: how many.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._idle: queue.SimpleQueue[Child] = queue.SimpleQueue()
        for _ in range(size):
            try:
                self._idle.put(_STARTED.get_nowait())
            except queue.Empty:
                self._idle.put(Child())

    @contextmanager
    def borrow(self) -> Iterator[Child]:
        """Waits for a child that is idle; one whose call failed is replaced."""
        child = self._idle.get()
        try:
            yield child
        except BaseException:
            child.close()
            child = Child()
            raise
        finally:
            self._idle.put(child)

    def close(self) -> None:
        """Ends those children that are idle; a borrowed one ends with its parent."""
        while not self._idle.empty():
            self._idle.get().close()


_STARTED: queue.SimpleQueue[Child] = queue.SimpleQueue()


def start_children(number: int, module: str) -> None:
    """Starts children that a `ChildPool` of this process will take, while other work is done.

    Args:
      number: of them.
      module: that they import meanwhile.
    """
    for _ in range(number):
        _STARTED.put(Child(module))


def end_children() -> None:
    """Ends those of `start_children` that nobody took."""
    while not _STARTED.empty():
        _STARTED.get().close()


def _command(module: str) -> list[str]:
    """Returns the child's command line: it imports from where this process does.

    Python puts the working directory first on the path of a -m or -c, where a user's own io.py
    or transforms.py may lie. So the path is this process's before anything is imported, and
    PYTHONSAFEPATH covers what Python 3.13 imports before it runs a -c.
    """
    path = [entry for entry in sys.path if isinstance(entry, str) and entry]
    return [sys.executable, "-c", _BOOTSTRAP, module, str(os.getpid()), *path]


def _send(stream: IO[bytes], value: object) -> None:
    data = pickle.dumps(value, protocol=5)
    stream.write(_SIZE.pack(len(data)) + data)
    stream.flush()


def _receive(stream: IO[bytes]) -> tuple[Any, ...]:
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError
    data = stream.read(_SIZE.unpack(head)[0])
    answer: tuple[Any, ...] = pickle.loads(data)
    return answer


def serve(module: str, parent: int) -> None:
    """The child's life: answers calls until the parent closes the pipe.

    Args:
      module: imported at once; '' for none.
      parent: its process id.
    """
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C ends
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not get among the replies
    if module:
        importlib.import_module(module)
    while True:
        try:
            call = _receive(sys.stdin.buffer)
        except EOFError:
            return
        _send(replies, _answer(call, lambda note: _send(replies, (_NOTE, note))))


def _answer(call: tuple[Any, ...], note: Callable[[object], None]) -> tuple[str, object]:
    """Does one call; an error with a meaning is handed on as it is, a bug with its traceback."""
    module, name, args = call
    try:
        function = getattr(importlib.import_module(module), name)
        return _DONE, function(*args, note)
    except (DataError, ConfigError, PlaceError) as error:
        return _FAILED, error
    except MemoryError as error:  # numpy's and pyarrow's are classes of their own
        return _FAILED, MemoryError(str(error))
    except Exception:
        return _FAILED, ChildError(traceback.format_exc())


def _end_with_parent(parent: int) -> None:
    """Ends this process in the middle of a call, too, when its parent was killed."""
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_SECONDS)
    os._exit(1)
