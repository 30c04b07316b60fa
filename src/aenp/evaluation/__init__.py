"""Quality of predictions: metrics, scores with standard errors, tables and plots.

It knows models and tasks, and nothing of where the tasks come from.
"""
