"""Runs the command in a process of its own that is killed at a chosen moment."""

from __future__ import annotations

import logging
import multiprocessing
import os
import pkgutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from launch.command import main

# A process that has Beam imported already makes the others by forking: 0.5 s each, not 5.
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["beam_pipeline.build", "beam_pipeline.report", "launch.local"])


def run_killed(arguments: list[object], target: str, call: int, *, before: bool) -> int:
    """Runs the command; SIGKILL comes before or after a function's n-th call.

    Args:
      arguments: of the command.
      target: "module:function" or "module:Class.method", where it is looked up.
      call: which call of it, from 1.
      before: whether the process ends before the call is made.

    Returns:
      The exit status, negative for a signal.
    """
    words = [str(argument) for argument in arguments]
    process = _PROCESSES.Process(target=_run_killed, args=(words, target, call, before))
    process.start()
    process.join(120)
    assert process.exitcode is not None
    return process.exitcode


def run_interrupted(arguments: list[object], when: Callable[[], bool], err: Path) -> int:
    """Runs the command slowly, sends SIGINT once `when` holds, and returns the exit status.

    What it prints on standard error goes to the file `err`.
    """
    words = [str(argument) for argument in arguments]
    process = _PROCESSES.Process(target=_run_slowly, args=(words, str(err)))
    process.start()
    while not when():
        assert process.is_alive()
        time.sleep(0.01)
    assert process.pid
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode


def _run_killed(words: list[str], target: str, call: int, before: bool) -> None:
    calls = 0

    def make(function: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **named: object) -> object:
            nonlocal calls
            calls += 1
            if calls == call and before:
                os.kill(os.getpid(), signal.SIGKILL)
            result = function(*args, **named)
            if calls == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return counted

    _run_with(target, make, words)


def _run_slowly(words: list[str], err: str) -> None:
    def make(function: Callable[..., object]) -> Callable[..., object]:
        def slow(*args: object, **named: object) -> object:
            time.sleep(0.1)
            return function(*args, **named)

        return slow

    os.dup2(os.open(err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    _run_with("transforms.core.writing:encode_pair", make, words)


def _run_with(
    target: str, make: Callable[[Callable[..., object]], object], words: list[str]
) -> None:
    owner, _, name = target.replace(":", ".").rpartition(".")
    parent = pkgutil.resolve_name(owner)
    setattr(parent, name, make(getattr(parent, name)))
    logging.getLogger().handlers.clear()  # set up by importing Beam before the command did
    sys.exit(main(words))
