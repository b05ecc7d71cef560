"""Tests that kill real daemons, clients and Spark pipelines at random, and check the results.

| module | what is killed |
|---|---|
| `clients.py` | the daemon, producers, and consumers that copy in transactions (`make torture`) |
| `spark_pipeline.py` | a query: drivers, JVMs, workers, and the broker (`make torture-spark`) |
| `publisher.py` | the publisher of the Spark sink, without Spark: hundreds of batches a minute |
| `spark_judging.py` | nothing: it compares what a pipeline read and wrote |
| `spark_programs.py` | the processes of `spark_pipeline.py`: feeders and drivers |
"""
