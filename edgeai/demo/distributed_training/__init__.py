"""Example of distributed training: processes of a PyTorchJob or a TFJob train one network together.

PyTorch: the same script trains as an ordinary job and, started by torchrun, as an elastic job.
TensorFlow: one script for copies of the network, one for a parameter server.
"""
