"""One row, one image, one record, one shard: everything that needs neither Beam nor a cluster."""
