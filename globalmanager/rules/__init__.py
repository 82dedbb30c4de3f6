"""Pure rules that several kinds share. Nothing here does I/O, reads a clock or logs."""
