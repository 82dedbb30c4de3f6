"""`edgeai doctor`: reads an installation over the Kubernetes API and names what is broken, and what
to do about it. It changes nothing.
"""
