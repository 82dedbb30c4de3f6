"""What GlobalManager and LocalController share: ids, errors, the wire, settings, logging.

Imported by both managers, imports neither; does no I/O of its own.
"""
