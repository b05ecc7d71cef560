"""The input of `barnabas produce`, and its sending: lines, JSON lines and CSV."""
