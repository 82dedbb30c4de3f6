"""Training jobs with real PyTorch and TensorFlow (make training-test)."""
