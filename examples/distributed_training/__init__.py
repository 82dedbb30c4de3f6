"""Example of distributed training: processes of a PyTorchJob train one network together.

The same script trains as an ordinary job and, started by torchrun, as an elastic job.
"""
