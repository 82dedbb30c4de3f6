"""What the kinds of elastic training (TrainingJob, ScaleOut, ScaleIn) share.

Source of names and words: AliyunContainerService/et-operator.
"""
