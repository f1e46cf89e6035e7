"""What happens to the data: one PTransform per file; `transforms.core` is free of Beam.

This package imports nothing, so that a training job can import `transforms.core`
without loading Beam.
"""
