"""Launch profiles, observed acceptance and honest comparison for LLM inference engines."""

__version__ = "0.1.0"
