"""The hand-over of a data directory to Apache Kafka and back: `barnabas graduate` and `take-over`.

A data directory has Kafka's form except for the metadata: topics, settings, users, ACLs and quotas
are in a journal of ours. Kafka (KRaft) begins an empty metadata log with the records of
`bootstrap.checkpoint`, so this one file hands a directory over; no other file is changed.

    kafka_versions       the differences between the supported versions of Kafka
    survey               the content of a stopped directory; nothing is written
    preparation          a start and a stop without clients: recovery; open transactions are aborted
    hand_over            the settings, users and features that Kafka gets
    server_properties    the configuration file for Kafka
    bootstrap            writes and reads `bootstrap.checkpoint`
    steps                the order in which a directory is handed over, in place or as a copy
    copies               the files of a copy: clones, links, or copies
    bring_back           changes made under Kafka go into the journal; the directory is ours again

`storage/directory/graduated.py` says which file names make a directory ours or Kafka's; after a
kill at any point it is one of the two.
"""
