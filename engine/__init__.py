"""The workflow engine: machines, decisions, store, runtime and workers.

It knows nothing of the terminal, and no state changes except along a transition of its machine.
"""
