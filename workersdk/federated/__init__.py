"""Federated learning: trainers keep their data, an aggregator joins their models.

`learning` is the trainer's side, `server` the aggregator's. Weights travel between them over HTTP
as raw numbers, in pieces with a checksum: see `protocol`.
"""
