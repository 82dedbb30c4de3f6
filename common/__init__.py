"""Code that GlobalManager and LocalController share: the wire, settings, logging.

This package imports neither of the two. Only settings (a file) and logs (a stream) do I/O.
"""
