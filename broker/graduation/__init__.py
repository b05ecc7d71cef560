"""A data directory goes to Apache Kafka, and comes back: `barnabas graduate` and `take-over`.

A data directory is Kafka's but for its metadata: topics, settings, users, ACLs and quotas are in a
journal of ours. Kafka (KRaft) begins an empty metadata log with all that `bootstrap.checkpoint`
holds, so that one file hands a directory over. Nothing else in it is changed.

    kafka_versions       what differs between the versions of Kafka that a directory may go to
    survey               what is in a directory that was stopped; nothing is written
    preparation          a start and a stop without clients: recovery; open transactions are aborted
    hand_over            what Kafka will be told: settings, users, features
    server_properties    the configuration file for Kafka
    bootstrap            the file itself, written and read
    steps                the order in which a directory is handed over, in place or as a copy
    copies               the files of a copy: clones, links, or copies
    bring_back           what was done under Kafka goes into the journal; the directory is ours

`storage/directory/graduated.py` says by which names a directory is whose, so that a kill leaves it
either ours or Kafka's.
"""
