"""What an engine's package knows, taken from its own parser and source: flags, values, environment variables.

Needs no torch, no GPU and no installed engine: the wheel (or the installed package's folder) is enough.
"""
