"""infscale: scale LLM inference on what fills an engine, its queue."""

__version__ = "0.1.0"
