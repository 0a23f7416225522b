"""The test suite, laid out like the packages it tests.

Tests use the real thing and wait for signals, never for seconds.
"""
