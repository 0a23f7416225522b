"""One `.tcss` stylesheet per screen, with the same stem as the screen's file.

How a screen looks is decided here alone; nothing here runs.
"""
