"""Writing topics exactly once: options, the spool, tasks, and the publisher of micro-batches."""
