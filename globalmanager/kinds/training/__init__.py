"""The training kinds of Kubeflow, and what only they share. A kind is a `framework.Framework`."""
