"""The measurements behind every figure in the documentation.

`make bench` runs them all and prints what it measured.
"""
