"""Example of joint inference: a small model at the edge and a big model in the cloud.

The models recognise handwritten digits.
"""
