"""The command line: what can be said, and how it becomes a configuration. Imports no Beam."""

from __future__ import annotations

import argparse
import difflib
import os
from typing import NoReturn

from beam_pipeline.config import (
    VERIFY_MODES,
    BuildConfig,
    Resources,
    Sampling,
    count_cores,
    make_shard_settings,
    parse_classes,
    parse_gate,
    parse_prefixes,
)
from transforms.core.errors import ConfigError
from transforms.core.manifest_rows import ManifestOptions
from transforms.core.manifests import FORMATS, find_manifests, find_source_root
from transforms.core.pairs import PAYLOADS
from transforms.core.settings import RecordSettings

RUNNERS = ("local", "flink", "dataflow")
_BUILT_RUNNERS = ("local",)

_EPILOG = """\
exit status: 0 done, or up to date; 1 verification failed; 2 wrong use, or a folder that is
refused; 3 more rejects than --max-rejects; 5 the environment failed (disk, permission,
network), trying again is safe; 6 another run holds the place; 70 a bug; 130 interrupted.
Options of Apache Beam itself follow a lone '--'."""


class _Parser(argparse.ArgumentParser):
    """An argparse parser whose complaints are ConfigErrors, and whose options aren't cut short."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__(
            **{
                "allow_abbrev": False,
                "formatter_class": argparse.RawDescriptionHelpFormatter,
                **kwargs,
            }
        )

    def parse_known_args(  # type: ignore[override]
        self, args: list[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuses what is left over here, where the options that were meant are known."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            given, known = rest[0].partition("=")[0], [*self._option_string_actions]
            near = difflib.get_close_matches(given, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
        return found, rest

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; see {self.prog} --help")


def parse_command_line(arguments: list[str]) -> tuple[argparse.Namespace, tuple[str, ...]]:
    """Splits a command line into our options and, behind a lone '--', Beam's.

    Raises:
      ConfigError: an option or a value that is not known.
    """
    ours, beams = arguments, ()
    if "--" in arguments:
        cut = arguments.index("--")
        ours, beams = arguments[:cut], tuple(arguments[cut + 1 :])
    return make_parser().parse_args(ours), beams


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands."""
    parser = _Parser(
        prog="pairshard",
        description="Turns manifests of files into sharded, verified TFRecord data sets.",
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_build(commands)
    _add_verify(commands)
    _add_show(commands)
    _add_manifest(commands)
    return parser


def make_build_config(args: argparse.Namespace, beam_options: tuple[str, ...]) -> BuildConfig:
    """Turns the options of `build` into a configuration.

    Raises:
      ConfigError: a value is wrong, or a file that is named is not there.
    """
    if args.compression is not None:
        raise ConfigError(
            "--compression: shards are not compressed: pictures gain nothing by it, and the "
            "index finds a record by its offset. --payload encoded makes a tenth of the size"
        )
    found = find_manifests(args.manifests)
    num_classes, class_names = parse_classes(args.classes)
    return BuildConfig(
        manifests=tuple(found),
        reading=ManifestOptions(
            source_root=find_source_root(found, args.source_root),
            format=args.manifest_format,
            replace_prefix=parse_prefixes(args.replace_prefix),
            split_by=args.split_by,
            allow_outside_root=args.allow_outside_root,
        ),
        output=os.path.abspath(args.output),
        record=RecordSettings(
            payload=args.payload,
            num_classes=num_classes,
            class_names=class_names,
            ignore_id=args.ignore_id,
            max_pixels=args.max_pixels,
            inside_root=not args.allow_outside_root,
        ),
        shards=make_shard_settings(
            seed=args.seed,
            split=args.split,
            split_by=args.split_by,
            num_shards=args.num_shards,
            shard_size=args.shard_size,
        ),
        gate=parse_gate(args.max_rejects),
        verify=args.verify,
        resources=make_resources(args, beam_options),
    )


def make_sampling(args: argparse.Namespace) -> Sampling:
    """Turns the options of `verify` into a choice of records."""
    everything = args.all or args.fraction is not None
    return Sampling(
        records=None if everything else Sampling().records,
        fraction=1.0 if args.fraction is None else args.fraction,
        num_shards=args.shards,
        seed=args.seed,
    )


def make_resources(args: argparse.Namespace, beam_options: tuple[str, ...]) -> Resources:
    """Turns the options that decide no byte into what a run may use."""
    if args.runner not in _BUILT_RUNNERS:
        raise ConfigError(
            f"--runner {args.runner}: this version of pairshard runs on one machine; "
            "--runner local is what it has"
        )
    if args.threads is not None and args.threads < 1:
        raise ConfigError(f"--threads {args.threads}: a number from 1 to 1024 is meant")
    workers = count_cores() if args.workers is None else args.workers
    by_itself = 0 if workers > 1 else count_cores()
    return Resources(
        runner=args.runner,
        workers=workers,
        threads=by_itself if args.threads is None else args.threads,
        beam_options=beam_options,
    )


def _add_build(commands: argparse._SubParsersAction[_Parser]) -> None:
    build = commands.add_parser(
        "build",
        help="manifests to a verified data set",
        description="Builds a data set from manifests, or goes on with one that was interrupted.",
        epilog=_EPILOG,
    )
    build.add_argument("manifests", nargs="+", metavar="MANIFEST", help="files or globs")
    build.add_argument("--output", required=True, metavar="DIR", help="a new or empty folder")
    _add_reading(build)
    _add_sharding(build)
    _add_records(build)
    build.add_argument(
        "--max-rejects",
        default="0",
        metavar="N|P%",
        help="commit with up to so many rejects (default 0)",
    )
    build.add_argument(
        "--verify",
        choices=VERIFY_MODES,
        default="sample",
        help="compare a sample of the records with their sources before committing (default)",
    )
    _add_resources(build)


def _add_reading(build: argparse.ArgumentParser) -> None:
    group = build.add_argument_group("manifests")
    group.add_argument(
        "--source-root", metavar="DIR", help="where relative paths start (the manifests' folder)"
    )
    group.add_argument(
        "--manifest-format", choices=FORMATS, default="auto", help="by the file's ending"
    )
    group.add_argument(
        "--replace-prefix",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="mend paths that begin with somebody else's folder; may be repeated",
    )
    group.add_argument(
        "--allow-outside-root", action="store_true", help="accept files outside the source root"
    )


def _add_sharding(build: argparse.ArgumentParser) -> None:
    group = build.add_argument_group("splits and shards")
    group.add_argument(
        "--split",
        metavar="NAME=SHARE,…",
        help="by the key's hash, such as train=0.9,val=0.1; a 'split' column wins",
    )
    group.add_argument(
        "--split-by", default="", metavar="COLUMN", help="keep rows of one value in one split"
    )
    number = group.add_mutually_exclusive_group()
    number.add_argument(
        "--num-shards", metavar="N", help="of each split, or by split: train=64,val=4"
    )
    number.add_argument(
        "--shard-size",
        default="256MiB",
        metavar="SIZE",
        help="a power of two of shards, the mean at or below this (default 256MiB)",
    )
    group.add_argument("--seed", type=int, default=0, help="of the order of the rows (default 0)")


def _add_records(build: argparse.ArgumentParser) -> None:
    group = build.add_argument_group("records")
    group.add_argument(
        "--payload",
        choices=PAYLOADS,
        default="raw",
        help="decoded pixels, or the files' own bytes at a tenth of the size (default raw)",
    )
    group.add_argument(
        "--classes", metavar="FILE|N", help="class names, one a line, or their number"
    )
    group.add_argument(
        "--ignore-id", type=int, default=255, metavar="ID", help="allowed beside them (default 255)"
    )
    group.add_argument(
        "--max-pixels",
        type=int,
        default=RecordSettings().max_pixels,
        metavar="N",
        help="reject larger pictures (default 100,000,000)",
    )
    group.add_argument("--compression", help=argparse.SUPPRESS)


def _add_resources(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("running")
    group.add_argument("--runner", choices=RUNNERS, default="local", help="where (default local)")
    group.add_argument(
        "--workers", type=int, metavar="N", help="processes (default: the cores); 1: this one"
    )
    group.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="that decode, in each process (default: as many as there are cores for it)",
    )
    group.add_argument("--quiet", action="store_true", help="no progress, no summary")


def _add_verify(commands: argparse._SubParsersAction[_Parser]) -> None:
    verify = commands.add_parser(
        "verify",
        help="read a data set back and compare it with its sources",
        description="Reads every shard, and compares a sample of the records with their sources.",
        epilog=_EPILOG,
    )
    verify.add_argument("dir", metavar="DIR", help="the data set")
    verify.add_argument(
        "--source-root", metavar="DIR", help="where the sources are now (as at the build)"
    )
    sample = verify.add_mutually_exclusive_group()
    sample.add_argument("--all", action="store_true", help="compare every record")
    sample.add_argument(
        "--fraction", type=float, metavar="F", help="compare this share (default 10,000 records)"
    )
    verify.add_argument("--shards", type=int, metavar="K", help="compare in K shards only")
    verify.add_argument("--seed", type=int, default=0, help="of the sample (default 0)")
    verify.add_argument("--report", metavar="FILE", help="write all that is wrong to a file")
    _add_resources(verify)


def _add_show(commands: argparse._SubParsersAction[_Parser]) -> None:
    show = commands.add_parser(
        "show",
        help="what is in a data set",
        description="Prints splits, shards, classes and rejects of a data set, or its records.",
        epilog=_EPILOG,
    )
    show.add_argument("dir", metavar="DIR", help="the data set")
    show.add_argument("--records", type=int, metavar="N", help="the first N records' features")
    show.add_argument("--key", metavar="K", help="find one record through the index")
    show.add_argument("--save", metavar="DIR", help="with --key: write image and mask as files")


def _add_manifest(commands: argparse._SubParsersAction[_Parser]) -> None:
    manifest = commands.add_parser("manifest", help="write a manifest of files that are there")
    forms = manifest.add_subparsers(dest="form", required=True, metavar="FORM")
    voc = forms.add_parser("voc", help="JPEGImages and SegmentationClass of a VOC folder")
    voc.add_argument("root", metavar="ROOT", help="the VOC folder")
    voc.add_argument(
        "--ids", required=True, metavar="LIST", help="a file of ids, or a name such as 'train'"
    )
    dirs = forms.add_parser("dirs", help="two folders whose files have the same names")
    dirs.add_argument("images", metavar="IMAGES")
    dirs.add_argument("masks", metavar="MASKS")
    dirs.add_argument("--image-suffix", default="", help="what images' names end with, '_rgb'")
    dirs.add_argument("--mask-suffix", default="", help="what masks' names end with, '_mask'")
    for form in (voc, dirs):
        form.add_argument("--output", metavar="FILE", help="the manifest (standard output)")
