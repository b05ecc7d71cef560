"""A small synchronous client of our own messages, for the commands that administrate a cluster.

    connection     one connection to a broker: TLS, login, versions, requests and their answers
    logins         TLS and SASL, loaded where a client's settings ask for them
    cluster_client the brokers of a cluster: the broker for a request, and the retries
    topics         requests about topics, partitions and offsets
    configs        requests about settings
    groups         requests about groups of all kinds
    transactions   requests about transactions and producers
    records        records of a partition, and a transaction that writes some

A command imports the modules that it needs, and a module the messages that it sends: that is most
of the time that a command takes.
"""
