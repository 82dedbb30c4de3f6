"""Bad input from those who install: kubeconfig, CustomResourceDefinitions, rights.

The GlobalManager says in words what to do: it exits where waiting cannot help, else it is not
ready, and goes on by itself once an administrator has done that.
"""
