"""The process's limit of open files, which each connection counts against."""

import resource


def allow_open_files(wanted: int) -> None:
    """Raise the limit towards `wanted`, as far as the system allows. Shells often have 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if resource.RLIM_INFINITY != soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
