"""The relay's protocol without sockets."""
