"""The workers of this node: receives their messages over HTTP, and watches them and their pods."""
