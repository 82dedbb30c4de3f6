"""The process's limit of open files, which each connection counts against."""

import resource


def allow_open_files(number: int) -> None:
    """Raise the limit towards `number`, as far as the system allows. Shells often have 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        number = min(number, hard)
    if resource.RLIM_INFINITY != soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
