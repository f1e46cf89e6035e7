"""This machine: Beam's in-process runner.

`FnApiRunner` is named, not `DirectRunner`: that one tries to download another runner first,
and picks one by what it finds in the pipeline.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Sequence
from typing import NoReturn

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.worker import sdk_worker

from beam_pipeline.config import Resources
from transforms.core.errors import ConfigError

# Several workers' errors are printed by Beam, with their tracebacks, and raised as well; what
# a user sees of them is `launch.status`' to decide.
sdk_worker.print = lambda *values, **options: None


def run_locally(define: Callable[[beam.Pipeline], None], resources: Resources) -> dict[str, int]:
    """Runs a pipeline to its end in this process.

    Args:
      define: adds the graph to a pipeline.
      resources: how many workers Beam has, which are threads of this process that do little
        but wait for a process of their own; and Beam's own options.

    Returns:
      The committed counters of the job, by name.
    """
    options = PipelineOptions(
        list(resources.beam_options),
        direct_running_mode="multi_threading" if resources.workers > 1 else "in_memory",
        direct_num_workers=resources.workers,
    )
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=options)
    define(pipeline)
    result = pipeline.run()
    result.wait_until_finish()
    counters = result.metrics().query()["counters"]
    return {counter.key.metric.name: counter.committed or 0 for counter in counters}


def check_beam_options(given: Sequence[str]) -> None:
    """Refuses what Beam would print a page of usage about, or leave out without a word.

    Raises:
      ConfigError: an option that Beam doesn't know, a value that it doesn't take, or a word
        that belongs to no option.
    """
    parser = _BeamParser(add_help=False, allow_abbrev=False)
    for kind in PipelineOptions.__subclasses__():
        kind._add_argparse_args(parser)
    _, rest = parser.parse_known_args(list(given))
    if not rest:
        return
    name = rest[0].partition("=")[0]
    if not name.startswith("-"):
        raise ConfigError(f"{name}: belongs to no option of Beam; after '--' only those may stand")
    near = difflib.get_close_matches(name, sorted(parser._option_string_actions), n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ConfigError(f"{name}: Beam has no such option{hint}")


class _BeamParser(argparse.ArgumentParser):
    """A parser of Beam's options whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"an option of Beam: {message}")
