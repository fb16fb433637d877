"""Text out: language models behind one interface."""
