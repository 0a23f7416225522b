"""The commands, one module per group.

`console.cli` names them by import path, so that a module is loaded only when its command runs.
"""
