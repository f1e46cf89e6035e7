"""The command `pairshard`: one function per sub-command, and the exit status of each.

Nothing heavy is imported before it is known to be needed: `--help` has to be quick.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

from beam_pipeline import options
from launch import status
from transforms.core.errors import ConfigError, PlaceError
from transforms.core.progress import PROGRESS

# numpy comes with OpenBLAS, whose threads wait by spinning; nothing here multiplies matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# imports inside the functions: see the module's docstring
# ruff: noqa: PLC0415


def main(arguments: list[str] | None = None) -> int:
    """Runs one command.

    Returns:
      The exit status; see `launch.status`.
    """
    status.open_streams()
    args = argparse.Namespace(command="")
    try:
        given = sys.argv[1:] if arguments is None else arguments
        args, beam_options = options.parse_command_line(given)
        with _noting_interruption():
            return _COMMANDS[args.command](args, beam_options)
    except KeyboardInterrupt:
        _leave_interrupted(args)
    except Exception as error:
        if PROGRESS.cancelled.is_set():  # a runner makes a RuntimeError of it
            _leave_interrupted(args)
        return status.explain_error(error)
    finally:
        status.settle_streams()


def _build(args: argparse.Namespace, beam_options: tuple[str, ...]) -> int:
    begun = time.monotonic()
    config = options.make_build_config(args, beam_options)
    _be_silent()
    from beam_pipeline.build import run_build
    from beam_pipeline.progress_line import show_progress
    from beam_pipeline.report import format_build
    from launch.local import check_beam_options, run_locally

    check_beam_options(beam_options)
    start = round(time.monotonic() - begun, 3)
    with show_progress(quiet=args.quiet):
        report = run_build(config, run_locally)
    report.seconds = {"start": start, **report.seconds}
    if not args.quiet or report.outcome not in ("built", "up to date"):
        _print_summary(format_build(config, report))
    outcomes = {
        "verification failed": status.VERIFICATION_FAILED,
        "too many rejects": status.TOO_MANY_REJECTS,
    }
    return outcomes.get(report.outcome, status.DONE)


def _verify(args: argparse.Namespace, beam_options: tuple[str, ...]) -> int:
    resources = options.make_resources(args, beam_options)
    sampling = options.make_sampling(args)
    _be_silent()
    from beam_pipeline.progress_line import show_progress
    from beam_pipeline.report import format_failures, format_verification
    from beam_pipeline.verify import open_dataset_folder, run_verify
    from launch.local import check_beam_options, run_locally

    check_beam_options(beam_options)
    folder = os.path.abspath(args.dir)
    _check_report_file(args.report, folder)
    config, checks, known = open_dataset_folder(folder, args.source_root, sampling, resources)
    with show_progress(quiet=args.quiet):
        report = run_verify(config, checks, run_locally, known)
    if args.report:
        wrong = format_failures(report.failures, "wrong", None)
        changed = format_failures(report.changed, "source changed", None)
        _write_text(args.report, "".join(line.strip() + "\n" for line in wrong + changed))
    if not args.quiet or report.failures or report.changed:
        _print_summary("\n".join(format_verification(report)))
    if report.failures:
        return status.VERIFICATION_FAILED
    if report.changed and not report.compared:
        raise ConfigError(
            f"no record could be compared: below {config.source_root} the sources of all "
            f"{len(report.changed)} that were chosen are missing or others than at the build; "
            "--source-root says where they are now"
        )
    return status.DONE


def _check_report_file(report: str | None, folder: str) -> None:
    """Refuses a report inside the data set: verifying writes nothing into it."""
    inside = report and os.path.realpath(report).startswith(os.path.realpath(folder) + os.sep)
    if inside:
        raise ConfigError(f"--report {report}: a file outside of the data set is meant")


def _show(args: argparse.Namespace, beam_options: tuple[str, ...]) -> int:
    _refuse_beam_options(args.command, beam_options)
    if args.save is not None and args.key is None:
        raise ConfigError("--save: --key says which record is meant")
    if args.key is not None and args.records is not None:
        raise ConfigError("--key and --records: one of them is meant")
    from beam_pipeline import show

    folder = os.path.abspath(args.dir)
    if args.key is not None:
        _print(show.format_record(folder, args.key, save=args.save))
    elif args.records is not None:
        for text in show.format_records(folder, args.records):
            if not _print(text):
                break
    else:
        _print(show.format_dataset(folder))
    return status.DONE


def _manifest(args: argparse.Namespace, beam_options: tuple[str, ...]) -> int:
    _refuse_beam_options(args.command, beam_options)
    from transforms.core import listing
    from transforms.core.manifests import format_manifest
    from transforms.core.pairs import PATH_COLUMNS

    if args.form == "voc":
        lines = format_manifest(listing.list_voc(args.root, args.ids), PATH_COLUMNS)
    else:
        found = listing.list_dirs(
            args.images, args.masks, image_suffix=args.image_suffix, mask_suffix=args.mask_suffix
        )
        lines = format_manifest(found.pairs, PATH_COLUMNS)
        status.say(f"pairshard: paths are relative to --source-root {found.root}")
        for what in ("images_alone", "masks_alone", "skipped"):
            for path in getattr(found, what):
                status.say(f"pairshard: {_LEFT_OUT[what]}: {path}")
    text = "".join(lines)
    if args.output:
        _write_text(args.output, text)
    else:
        if isinstance(sys.stdout, io.TextIOWrapper):  # a manifest is UTF-8, whatever the locale
            sys.stdout.reconfigure(encoding="utf-8", errors="strict")
        _print(text, end="")
    return status.DONE


_COMMANDS = {"build": _build, "verify": _verify, "show": _show, "manifest": _manifest}


_LEFT_OUT = {
    "images_alone": "left out, an image without a mask",
    "masks_alone": "left out, a mask without an image",
    "skipped": "left out, another ending or name, hidden, or a linked folder",
}


def _write_text(path: str, text: str) -> None:
    from transforms.core.files import place_errors

    with place_errors(path), open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)


def _refuse_beam_options(command: str, beam_options: tuple[str, ...]) -> None:
    if beam_options:
        raise ConfigError(f"{' '.join(beam_options)}: {command} takes no options of Beam")


def _print(text: str, end: str = "\n") -> bool:
    """Prints on standard output; tells whether its reader is still there (`| head` goes).

    Raises:
      PlaceError: it can't be written for another reason, such as a full disk.
    """
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        status.mute(sys.stdout)
        return False
    except OSError as error:
        status.mute(sys.stdout)
        raise PlaceError(f"writing standard output failed: {error.strerror}") from error
    return True


def _print_summary(text: str) -> None:
    """Prints what the exit status says as well, and keeps: the work is done by now."""
    with suppress(PlaceError):
        _print(text)


def _be_silent() -> None:
    """Keeps Beam's start-up noise from the user; what fails is raised, and shown by us."""
    logging.basicConfig(level=logging.CRITICAL, format="%(name)s: %(message)s")


@contextmanager
def _noting_interruption() -> Iterator[None]:
    """Notes Ctrl-C beside raising it: in Beam there are places that swallow the exception."""

    def note(signum: int, frame: object) -> None:
        PROGRESS.cancelled.set()
        raise KeyboardInterrupt

    # Where another handler stands, somebody wants that one: `nohup` ignores the signal.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave_interrupted(args: argparse.Namespace) -> NoReturn:
    """Ends at once: threads of a runner can't be told to."""
    PROGRESS.cancelled.set()
    status.say(f"\npairshard: interrupted{_what_was_left(args)}")
    os._exit(status.INTERRUPTED)


def _what_was_left(args: argparse.Namespace) -> str:
    """Says what an interrupted command leaves behind."""
    if args.command == "verify":
        return "; not all was read, so nothing is known of the data set. It was not touched"
    if args.command != "build":
        return ""
    # A name, not an import: the interruption may have come in the middle of that.
    if os.path.exists(os.path.join(args.output, "dataset.json")):
        return f"; {args.output} is a finished data set"
    return "; nothing was published. The same command goes on from the shards that are finished"
