"""The controllers: the Deployment controller, the scheduler, the garbage collector."""
