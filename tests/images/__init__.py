"""The product's images on amd64 and arm64; `make image-test` runs them, as root."""
