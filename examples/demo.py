"""What `make demo` runs: draws pairs, builds a data set of them, verifies, shows and reads it.

    python examples/demo.py FOLDER --pairs 200

Each command is printed before it runs, as it would be typed. What is there already is not made
again: the second run finds the pairs drawn and the data set up to date.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPLIT = "train=0.9,val=0.1"


def run(*command: str, quiet: bool = False) -> None:
    """Prints a command and runs it; the demo ends where one fails, with its exit status.

    With `quiet`, its standard error is shown only if it fails: what TensorFlow logs while it is
    imported can't be switched off (2.21 writes it before it looks at TF_CPP_MIN_LOG_LEVEL).
    """
    print(f"\n$ {shlex.join(command)}", flush=True)
    program = {
        "pairshard": [sys.executable, "-m", "launch"],
        "python": [sys.executable],
    }[command[0]]
    path = os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path}
    errors = subprocess.PIPE if quiet else None
    done = subprocess.run(
        [*program, *command[1:]], env=environment, stderr=errors, text=True, check=False
    )
    if done.returncode:
        print(done.stderr or "", end="", file=sys.stderr)
        sys.exit(done.returncode)


def draw(folder: str, pairs: int) -> None:
    """Draws the pairs, unless they are there: pairs.csv is written last."""
    manifest = Path(folder, "pairs.csv")
    if not manifest.exists():
        run("python", show_path(HERE / "draw_pairs.py"), folder, "--pairs", str(pairs))
        return
    there = len(manifest.read_text(encoding="utf-8").splitlines()) - 1
    if there != pairs:
        sys.exit(
            f"demo: {folder} holds {there} pairs, not {pairs}. Remove the folder, or give another"
        )
    print(f"\n{folder} holds {pairs} pairs already")


def show_path(path: Path) -> str:
    """A path as one would type it here."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


def read_snippet() -> str:
    """The lines of read_pairs.py that a training job needs."""
    text = (HERE / "read_pairs.py").read_text(encoding="utf-8")
    return text.partition("# [reading]\n")[2].partition("# [end of reading]")[0].strip()


def list_shards(dataset: str) -> None:
    """Says where the shards are."""
    shards = sorted(Path(dataset).glob("*.tfrecord"))
    print(f"\nThe shards are in {Path(dataset).resolve()}:")
    for shard in shards[:8]:
        print(f"  {shard.name}")
    if len(shards) > 8:
        print(f"  … and {len(shards) - 8} more; dataset.json names them all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("folder", help="where the pairs and the data set go")
    parser.add_argument("--pairs", type=int, default=200, help="how many (default %(default)s)")
    args = parser.parse_args()
    pairs, dataset = f"{args.folder}/pairs", f"{args.folder}/dataset"
    draw(pairs, args.pairs)
    run(
        "pairshard",
        "build",
        f"{pairs}/pairs.csv",
        "--output",
        dataset,
        "--split",
        SPLIT,
        "--num-shards",
        "train=4,val=1",
        "--classes",
        f"{pairs}/classes.txt",
    )
    run("pairshard", "verify", dataset, "--all")
    run("pairshard", "show", dataset)
    run("python", show_path(HERE / "read_pairs.py"), dataset, quiet=True)
    list_shards(dataset)
    print("\nThese lines read them in training (examples/read_pairs.py):\n")
    print("\n".join(f"    {line}".rstrip() for line in read_snippet().splitlines()))
    print(f'\n    for image, mask in read_pairs("{dataset}").shuffle(1000).batch(8):')
    print("        ...")
    if (activate := Path(sys.prefix, "bin", "activate")).exists():
        print(
            f"\n`. {show_path(activate)}` puts pairshard on your PATH; then: pairshard build --help"
        )


if __name__ == "__main__":
    main()
