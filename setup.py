"""The distribution `pairshard`: three packages, one command. Also what `--setup_file` packs.

Pillow and pyarrow decide bytes, so they are pinned here as well; the other ranges say what the
code needs. requirements.txt is the full lock that `make` and CI install.
"""

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
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    python_requires=">=3.10,<3.14",
    packages=["beam_pipeline", "launch", "transforms", "transforms.core"],
    install_requires=[
        "apache-beam>=2.77,<3",
        "google-crc32c>=1.9,<2",  # a plain apache-beam has no CRC-32C
        "numpy>=2.2,<3",
        "Pillow==12.3.0",
        "pyarrow==25.0.1",
        "tensorflow>=2.21,<3",
        "tqdm>=4.66,<5",
    ],
    entry_points={"console_scripts": ["pairshard = launch.command:main"]},
)
