"""One file per screen of the console.

A screen holds no engine object, so it is the same whether the engine is embedded or attached.
"""
