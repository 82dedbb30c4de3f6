"""Pure functions that kinds of two families use. Each file is named for what it decides."""
