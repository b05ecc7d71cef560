"""Reading topics: options, plans of batch and streaming queries, and the reader of one range."""
