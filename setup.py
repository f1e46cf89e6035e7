"""The distribution `pairshard`: three packages, one command. Also what `--setup_file` packs."""

from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent

setup(
    name="pairshard",
    version="0.1.0",
    description="Manifests of files become sharded, verified, reproducible TFRecord data sets.",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10,<3.14",
    packages=["beam_pipeline", "launch", "transforms", "transforms.core"],
    install_requires=[
        "apache-beam==2.77.0",
        "google-crc32c==1.9.0",
        "numpy>=2.2,<2.5",
        "Pillow==12.3.0",
        "pyarrow==25.0.1",
        "tensorflow==2.21.0",
        "tqdm>=4.66",
    ],
    entry_points={"console_scripts": ["pairshard = launch.command:main"]},
)
