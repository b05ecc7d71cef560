"""PySpark's data source `format("barnabas")`: reads topics, and writes them exactly once."""
