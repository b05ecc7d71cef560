"""The input of `barnabas produce` (lines, JSON lines and CSV), and the sender of its records."""
