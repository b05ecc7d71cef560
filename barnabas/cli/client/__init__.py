"""The requests of the commands that administrate a cluster, on the client of `barnabas.client`.

    calls          its calls in threads that end with --timeout, and its options
    wording        its errors, with the names of settings of --client-config
    cluster_client the brokers of a cluster: the broker for a request, and the retries
    topics         requests about topics, partitions and offsets
    configs        requests about settings
    groups         requests about groups of all kinds
    transactions   requests about transactions and producers
    records        records of a partition, and a transaction that writes some

A command imports only the modules that it needs, and a module only the messages that it sends,
since a command spends most of its time on imports.
"""
