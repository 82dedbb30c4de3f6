"""Elastic training by a launcher, as in the et-operator: the job, its scalers, what they share."""
