"""`edgeai credentials`: the certificate of the edge port, and the credentials of edge nodes."""
