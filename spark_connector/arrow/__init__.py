"""Record batches as Arrow columns and back, without a Python step per record."""
