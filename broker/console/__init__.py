"""The console: a page that shows the broker live, with `--console-port` only."""
