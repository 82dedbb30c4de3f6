"""Training jobs of the Kubeflow API: replicas of several types that run one training together.

The kinds tfjob and pytorchjob describe their framework (`framework`). Everything else is the same
for both kinds and is here.
"""
