"""What `barnabas produce` reads and sends: lines, JSON lines and CSV."""
