"""Published clients of training jobs, unchanged, on both clusters."""
