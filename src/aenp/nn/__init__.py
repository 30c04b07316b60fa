"""Layers: attention, convolutions, set convolutions and the lattice they work on.

They know tensors, and nothing of tasks or models.
"""
