"""The GlobalManager watches job resources in Kubernetes and keeps them as declared."""
