"""A Kafka client of our own messages: what all clients in this repository share.

    options           the settings of a client's connections
    request_kind      a kind of request: its two messages, and the versions that are used
    frames            a request and its response on any socket, one at a time
    sasl              the login: its requests, and the exchanges of the mechanisms
    security          TLS and SASL by settings; oauth, key_stores and tls_settings are parts of it
    connection        one connection to a broker: TLS, login, versions, requests and responses in
                      order; `Connections`, one for each broker and purpose; Metadata
    cluster_reader    a client for readers: partitions, offsets, Fetch of one partition; retries
    murmur2           the partition of a key
    notices           what the log says while a request is repeated

It is synchronous: an object belongs to one thread, and a call blocks until its response has
arrived. A caller that must not block calls it in a thread (`barnabas.cli.waiting` does so).
"""
