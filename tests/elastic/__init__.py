"""Elastic training jobs with real Horovod and PyTorch (make elastic-test)."""
