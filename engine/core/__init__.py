"""Every decision that the engine takes, as pure functions: no clock, no chance, no I/O.

`decide` turns a signal into a decision, `dispatch` gives ready work to free slots, `explain` says why
something does not move. Time and random numbers are arguments.
"""
