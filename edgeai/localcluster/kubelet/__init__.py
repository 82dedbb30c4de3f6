"""The kubelet: runs pods as processes of this machine."""
