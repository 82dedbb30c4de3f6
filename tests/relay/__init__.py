"""The relay from a worker's connection to a Service, over real sockets."""
