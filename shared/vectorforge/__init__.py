"""VectorForge: ask your own documents, from your own AWS account or your own laptop.

Importing this package executes nothing: no environment is read, nothing connects, no SDK is loaded.
"""

__version__ = "0.2.0"

__all__ = ["__version__"]
