"""How the data is processed: configuration, the graph, running it, reporting.

This package imports nothing by itself, so that `pairshard --help` need not load Beam.
"""
