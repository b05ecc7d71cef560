"""The hand-over of a data directory to Apache Kafka and back: `barnabas graduate` and `take-over`.

A data directory has Kafka's form except for the metadata: topics, settings, users, ACLs and quotas
are in a journal of ours. Kafka (KRaft) begins an empty metadata log with the records of
`bootstrap.checkpoint`, so this one file hands a directory over. No other file is changed.

    kafka_versions       the differences between the supported versions of Kafka
    survey               the content of a stopped directory; nothing is written
    preparation          a start and a stop without clients: recovery; open transactions are aborted
    hand_over            the settings, users and features that Kafka gets
    server_properties    the configuration file for Kafka
    bootstrap            writes and reads `bootstrap.checkpoint`
    steps                the order in which a directory is handed over, in place or as a copy
    copies               the files of a copy: clones, links, or copies
    bring_back           merges the changes made under Kafka into the journal

`storage/directory/graduated.py` defines which file names mark a directory as ours or Kafka's. After
a kill at any point the directory belongs to exactly one of the two.
"""
