"""The two graphs, each on one screen; the element type stands after every step."""

from __future__ import annotations

import apache_beam as beam

from beam_pipeline.config import BuildConfig, VerifyConfig
from transforms.assign_shards import AssignShards
from transforms.core.verifying import ShardCheck
from transforms.core.writing import WriteOptions
from transforms.plan_shards import PlanShards
from transforms.read_manifest import ReadManifest
from transforms.reject_duplicates import RejectDuplicates
from transforms.verify_shards import VerifyOptions, VerifyShards
from transforms.write_account import WriteAccount
from transforms.write_rejects import WriteRejects
from transforms.write_tfrecord import WriteToTFRecord

SHARDS, MANIFESTS, CHANGED, CHECKS = "shards", "manifests", "changed", "checks"
"""The accounts that the driver reads when a job has ended."""


def define_build(
    root: beam.Pipeline, config: BuildConfig, options: WriteOptions, *, accounts: str
) -> None:
    """Manifests to shards; `accounts` is the folder of what the driver reads afterwards.

    What is shuffled is rows, some 200 bytes each; pixels never leave the worker that decodes
    them.
    """
    resources = config.resources
    manifests = root | "Manifests" >> beam.Create(config.manifests)  # str
    read = manifests | "ReadManifest" >> ReadManifest(config.reading)
    rows = read.rows | "RejectDuplicates" >> RejectDuplicates()  # packed Row
    plan = rows | "PlanShards" >> PlanShards(  # (split, number of shards)
        config.shards, config.record, config.reading.source_root
    )
    tasks = rows | "AssignShards" >> AssignShards(config.shards, plan)  # ShardTask
    written = tasks | "WriteToTFRecord" >> WriteToTFRecord(
        options, processes=resources.workers, threads=resources.threads
    )
    rejects = (read.rejects, written.rejects) | "Rejects" >> beam.Flatten()  # RejectBatch
    _ = rejects | "WriteRejects" >> WriteRejects(accounts)
    _ = written.shards | "WriteShardInfos" >> WriteAccount(accounts, SHARDS)
    _ = written.changed | "WriteChanged" >> WriteAccount(accounts, CHANGED)
    _ = read.manifests | "WriteManifestInfos" >> WriteAccount(accounts, MANIFESTS)


def define_verify(
    root: beam.Pipeline, config: VerifyConfig, checks: list[ShardCheck], *, accounts: str
) -> None:
    """Shards to what was found out about them."""
    sampling = config.sampling
    options = VerifyOptions(
        folder=config.folder,
        source_root=config.source_root,
        payload=config.payload,
        seed=sampling.seed,
        sample=sampling.records,
        fraction=sampling.fraction,
        threads=config.resources.threads,
    )
    shards = root | "Shards" >> beam.Create(checks)  # ShardCheck
    verified = shards | "VerifyShards" >> VerifyShards(options)  # VerifyInfo
    _ = verified | "WriteVerifyInfos" >> WriteAccount(accounts, CHECKS)
