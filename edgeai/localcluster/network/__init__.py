"""The network: loopback addresses of pods and Services, and the proxy of the Services."""
