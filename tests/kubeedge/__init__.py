"""The product on KubeEdge itself, with nodes and containers; `make kubeedge` runs it, as root."""
