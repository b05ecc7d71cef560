"""The settings of the broker, one in each row: name, type, default, bounds, purpose.

A row is the only declaration of a setting. It is a typed attribute of BrokerConfig
(`config.node_id` is an int). The setting's name is the attribute's name with dots in place of the
underscores. docs/CONFIGURATION.md is generated from the rows. They are grouped by subject, and
`BrokerRows` contains all of them.

Source: Apache Kafka 3.9's configuration reference. Only this broker has the settings whose names
begin with `barnabas.`.
"""

from __future__ import annotations

from barnabas.broker.settings.features import EMULATED, LEVELS
from barnabas.broker.settings.listeners import PASSWORD_MECHANISMS, SASL_MECHANISMS
from barnabas.broker.settings.rows_annexes import ConsoleRows, MetricsRows, StandbyRows
from barnabas.broker.settings.rows_share import ShareRows
from barnabas.broker.settings.rows_streams import StreamsRows
from barnabas.broker.settings.rows_topic import CODECS, POLICIES, TIMESTAMP_TYPES
from barnabas.broker.settings.setting import (
    DAY_MS,
    HOUR_MS,
    INT_MAX,
    LONG_MAX,
    MINUTE_MS,
    boolean,
    double,
    integer,
    long,
    optional_integer,
    optional_long,
    optional_string,
    password,
    rows_of,
    short,
    string,
    strings,
)

MOST_BROKERS = 100
_UNBOUNDED = "it is 1 or more, or -1: for ever"
_GZIP_LEVELS = "it is 1 to 9, or -1 for the codec's default"


class NodeRows:
    """The broker itself: its number, listeners and data directory, and the release that it
    emulates.
    """

    node_id = integer(1, "This broker's number.", lowest=0)
    broker_id = optional_integer("The older name of node.id.", lowest=0)
    broker_rack = optional_string("The rack of this broker, as Metadata shows it.")
    listeners_text = string(
        "PLAINTEXT://127.0.0.1:9092",
        "Where to listen: NAME://ADDRESS:PORT, several separated by commas; a name is PLAINTEXT, "
        "SSL, SASL_PLAINTEXT (clients have to authenticate) or SASL_SSL, or one of "
        "listener.security.protocol.map; port 0 takes a free port; unix:///PATH is a socket in "
        "the file system.",
        name="listeners",
    )
    advertised_listeners = optional_string(
        "The address that clients are given to connect to, for each name of listeners; by default "
        "the address to which they connected.",
    )
    log_dirs = optional_string("The data directory: one path.")
    log_dir = string("./data", "The data directory, where log.dirs is not set.")
    auto_leader_rebalance_enable = boolean(True, "Accepted; there is one replica.")
    controlled_shutdown_enable = boolean(True, "Accepted; there is one broker.")
    security_inter_broker_protocol = string("PLAINTEXT", "Accepted; there is one broker.")
    inter_broker_listener_name = optional_string(
        "One of listeners; it has no other effect, since there is one broker.",
    )
    listener_security_protocol_map = string(
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The protocol of each listener name, as NAME:PROTOCOL separated by commas.",
    )
    controller_listener_names = strings(
        ("CONTROLLER",),
        "Listeners of these names are skipped: there is no controller.",
    )
    barnabas_brokers = integer(
        1,
        "The number of brokers that this process acts as, for tests of clients: each has its own "
        "port and node.id (the next ones after those set); all share one log directory, and a "
        "record is stored once. docs/TESTING.md.",
        lowest=1,
        highest=MOST_BROKERS,
    )
    barnabas_emulate = string(
        "",
        "The release of Apache Kafka that clients see, with its versions of requests, its "
        "features and its answers: 3.9 or 4.3; empty: the newest, with all older versions. "
        "docs/COMPATIBILITY.md.",
        choices=("", *EMULATED),
    )
    barnabas_features = strings(
        (),
        "Levels of features that are finalised instead of the newest, each as NAME=LEVEL; "
        "transaction.version=0 keeps clients at the first version of transactions.",
        choices=LEVELS,
    )


class ConnectionRows:
    """Connections, requests, quotas and threads."""

    socket_request_max_bytes = integer(100 << 20, "The largest request that is read.", lowest=1)
    fetch_max_bytes = integer(55 << 20, "The largest answer to one fetch.", lowest=1024)
    max_incremental_fetch_session_cache_slots = integer(
        1000,
        "The largest number of fetch sessions.",
        lowest=0,
    )
    connections_max_idle_ms = long(
        600_000,
        "How long a connection may be idle before it is closed, unless it waits for an answer; "
        "negative: for ever.",
    )
    quota_window_num = integer(
        11,
        "The number of windows over which clients' rates are measured for quotas.",
        lowest=1,
    )
    quota_window_size_seconds = integer(1, "The length of one window.", lowest=1)
    controller_quota_window_num = integer(
        11,
        "The number of windows whose controller_mutation_rate may be used at once.",
        lowest=1,
    )
    controller_quota_window_size_seconds = integer(1, "The length of one window.", lowest=1)
    max_connections = integer(
        INT_MAX,
        "The largest number of connections; further clients wait until a connection ends.",
        lowest=1,
        dynamic=True,
    )
    max_connections_per_ip = integer(
        INT_MAX,
        "The largest number of connections from one address; further ones are closed. 0 needs "
        "max.connections.per.ip.overrides.",
        lowest=0,
        dynamic=True,
    )
    max_connections_per_ip_overrides = string(
        "",
        "Limits of max.connections.per.ip for some addresses: ADDRESS:NUMBER, separated by commas.",
        dynamic=True,
    )
    max_connection_creation_rate = integer(
        INT_MAX,
        "The largest number of connections accepted per second, measured over the windows of "
        "quotas; others wait.",
        lowest=0,
        dynamic=True,
    )
    num_network_threads = integer(3, "Accepted; there is one thread.", lowest=1, dynamic=True)
    num_io_threads = integer(8, "Accepted; there is one thread.", lowest=1, dynamic=True)
    background_threads = integer(10, "Accepted; there is one thread.", lowest=1, dynamic=True)
    queued_max_request_bytes = long(
        256 << 20,
        "The most memory, over all connections, for requests that have not arrived completely or "
        "wait for a thread: above it only one connection of each principal is read at a time, and "
        "connections whose requests make no progress are closed; -1: no bound.",
        lowest=-1,
    )
    barnabas_request_max_bytes = integer(
        2 << 20,
        "The largest request other than Produce, and the most bytes of a Produce beside its "
        "records. These bytes name topics and partitions, and cost a hundred times as much as "
        "records.",
        lowest=1 << 16,
    )
    barnabas_waiting_fetches_max_bytes = long(
        128 << 20,
        "The most memory, over all connections, of fetches that wait for data: about 500 bytes for "
        "each partition. A principal (without a login: an address) may use as much as is left, so "
        "alone at most half. A fetch beyond it is answered at once with what there is, and its "
        "client is throttled.",
        lowest=0,
    )
    queued_max_requests = integer(
        500,
        "Accepted; each connection has one request in progress.",
        lowest=1,
    )
    socket_send_buffer_bytes = integer(102_400, "Accepted; the system's default is used.")
    socket_receive_buffer_bytes = integer(102_400, "Accepted; the system's default is used.")
    socket_listen_backlog_size = integer(50, "Accepted.", lowest=1)


class LogRows:
    """Topics and logs. Most of these settings are the defaults for topics' settings."""

    num_partitions = integer(
        1,
        "The number of partitions of a new topic whose creation names none.",
        lowest=1,
    )
    default_replication_factor = integer(
        1,
        "The replicas of a topic; with several brokers (barnabas.brokers) the default is their "
        "number, at most 3.",
        lowest=1,
    )
    auto_create_topics_enable = boolean(
        True,
        "Whether a topic is created when a client first asks for it.",
    )
    delete_topic_enable = boolean(True, "Whether topics may be deleted.", deletes=True)
    message_max_bytes = integer(1048588, "Default of max.message.bytes.", lowest=0, dynamic=True)
    min_insync_replicas = integer(1, "Default of the topic's setting.", lowest=1, dynamic=True)
    compression_type = string(
        "producer",
        "Default of the topic's setting.",
        choices=CODECS,
        dynamic=True,
    )
    compression_gzip_level = integer(
        -1,
        "Default of the topic's setting.",
        lowest=-1,
        highest=9,
        never=(0,),
        never_because=_GZIP_LEVELS,
        dynamic=True,
    )
    compression_lz4_level = integer(
        9,
        "Default of the topic's setting.",
        lowest=1,
        highest=17,
        dynamic=True,
    )
    compression_zstd_level = integer(
        3,
        "Default of the topic's setting.",
        lowest=-131072,
        highest=22,
        dynamic=True,
    )
    unclean_leader_election_enable = boolean(False, "Default of the topic's setting.", dynamic=True)
    log_cleanup_policy = strings(
        ("delete",),
        "Default of cleanup.policy.",
        choices=POLICIES,
        dynamic=True,
    )
    log_cleaner_delete_retention_ms = long(
        DAY_MS,
        "Default of delete.retention.ms.",
        lowest=0,
        dynamic=True,
    )
    log_cleaner_max_compaction_lag_ms = long(
        LONG_MAX,
        "Default of max.compaction.lag.ms.",
        lowest=1,
        dynamic=True,
    )
    log_cleaner_min_cleanable_ratio = double(
        0.5,
        "Default of min.cleanable.dirty.ratio.",
        lowest=0,
        highest=1,
        dynamic=True,
    )
    log_cleaner_min_compaction_lag_ms = long(
        0,
        "Default of min.compaction.lag.ms.",
        lowest=0,
        dynamic=True,
    )
    log_cleaner_enable = boolean(True, "Whether compaction runs.", deletes=True)
    log_cleaner_dedupe_buffer_size = long(
        128 << 20,
        "The largest size of the cleaner's map of keys.",
        lowest=1 << 20,
        dynamic=True,
    )
    log_cleaner_backoff_ms = long(
        15_000,
        "How long the cleaner pauses when there is nothing to clean.",
        lowest=0,
        dynamic=True,
    )
    log_flush_interval_messages = long(
        LONG_MAX,
        "Default of flush.messages.",
        lowest=1,
        dynamic=True,
    )
    log_flush_interval_ms = optional_long("Default of flush.ms.", dynamic=True)
    log_flush_scheduler_interval_ms = long(
        LONG_MAX,
        "Default of flush.ms where log.flush.interval.ms is not set.",
    )
    log_flush_offset_checkpoint_interval_ms = integer(
        MINUTE_MS,
        "How often recovery points are written to disk.",
        lowest=0,
    )
    log_index_interval_bytes = integer(
        4096,
        "Default of index.interval.bytes.",
        lowest=0,
        dynamic=True,
    )
    log_index_size_max_bytes = integer(
        10 << 20,
        "Default of segment.index.bytes.",
        lowest=4,
        dynamic=True,
    )
    log_initial_task_delay_ms = long(
        30_000,
        "How long after the start periodic tasks begin.",
        lowest=0,
    )
    log_local_retention_bytes = long(
        -2,
        "Default of local.retention.bytes.",
        lowest=-2,
        dynamic=True,
    )
    log_local_retention_ms = long(-2, "Default of local.retention.ms.", lowest=-2, dynamic=True)
    log_message_downconversion_enable = boolean(
        True,
        "Default of the topic's setting.",
        dynamic=True,
    )
    log_message_format_version = string("3.0-IV1", "Default of the topic's setting.")
    log_message_timestamp_after_max_ms = long(
        LONG_MAX,
        "Default of the topic's setting.",
        lowest=0,
        dynamic=True,
    )
    log_message_timestamp_before_max_ms = long(
        LONG_MAX,
        "Default of the topic's setting.",
        lowest=0,
        dynamic=True,
    )
    log_message_timestamp_difference_max_ms = long(
        LONG_MAX,
        "Default of the topic's setting.",
        lowest=0,
        dynamic=True,
    )
    log_message_timestamp_type = string(
        "CreateTime",
        "Default of the topic's setting.",
        choices=TIMESTAMP_TYPES,
        dynamic=True,
    )
    log_preallocate = boolean(False, "Default of preallocate.", dynamic=True)
    log_retention_bytes = long(-1, "Default of retention.bytes.", dynamic=True)
    log_retention_check_interval_ms = long(
        300_000,
        "How often retention is checked.",
        lowest=1,
    )
    log_retention_hours = integer(
        168,
        "Default of retention.ms, in hours, where neither log.retention.minutes nor "
        "log.retention.ms is set.",
        never=(0,),
        never_because=_UNBOUNDED,
    )
    log_retention_minutes = optional_integer(
        "Default of retention.ms, in minutes, where log.retention.ms is not set.",
        never=(0,),
        never_because=_UNBOUNDED,
    )
    log_retention_ms = optional_long(
        "Default of retention.ms.",
        never=(0,),
        never_because=_UNBOUNDED,
        dynamic=True,
    )
    log_roll_hours = integer(
        168,
        "Default of segment.ms, in hours, where log.roll.ms is not set.",
        lowest=1,
    )
    log_roll_ms = optional_long("Default of segment.ms.", dynamic=True)
    log_roll_jitter_hours = integer(0, "Default of segment.jitter.ms, in hours.", lowest=0)
    log_roll_jitter_ms = optional_long("Default of segment.jitter.ms.", dynamic=True)
    log_segment_bytes = integer(1 << 30, "Default of segment.bytes.", lowest=14, dynamic=True)
    log_segment_delete_delay_ms = long(
        MINUTE_MS,
        "Default of file.delete.delay.ms.",
        lowest=0,
        dynamic=True,
    )
    num_recovery_threads_per_data_dir = integer(1, "Accepted.", lowest=1, dynamic=True)
    num_replica_fetchers = integer(1, "Accepted; there is one replica.", dynamic=True)
    barnabas_decompressed_max_bytes = integer(
        128 << 20,
        "The most bytes that a producer's batch may decompress to; a larger one is refused with "
        "MESSAGE_TOO_LARGE. Of a larger batch that is already in a log, compaction keeps all "
        "records, and a search by time stops at its first record.",
        lowest=1 << 20,
    )
    barnabas_disk_reserve_bytes = long(
        64 << 20,
        "Free space on the disk below which requests that write are refused; the reserve is for "
        "ending transactions.",
        lowest=0,
    )
    barnabas_internal_topics_dirty_bytes = long(
        4 << 20,
        "The most bytes of __consumer_offsets and __transaction_state that a start replays, "
        "beyond compacted segments: above it their segments are closed before they are full, "
        "and compacted.",
        lowest=0,
    )
    barnabas_flush_journal_logs = integer(
        2,
        "The number of logs in one flush from which their small writes go to a journal, so that "
        "one file is flushed instead of all; also when a transaction ends. 0: no journal, and a "
        "commit waits for three flushes.",
        lowest=0,
    )


class GroupRows:
    """Groups and their offsets."""

    offset_metadata_max_bytes = integer(
        4096,
        "The longest metadata of a committed offset.",
        lowest=0,
    )
    offsets_commit_required_acks = short(-1, "Accepted; there is one replica.")
    offsets_commit_timeout_ms = integer(5000, "Accepted; there is one replica.", lowest=1)
    offsets_retention_check_interval_ms = long(
        600_000,
        "How often expired offsets are removed.",
        lowest=1,
    )
    offsets_retention_minutes = integer(
        10_080,
        "How long offsets of an empty group are kept.",
        lowest=1,
        deletes=True,
    )
    offsets_topic_num_partitions = integer(
        50,
        "Partitions of __consumer_offsets, when it is created.",
        lowest=1,
    )
    offsets_topic_replication_factor = short(
        1,
        "The same as default.replication.factor, for __consumer_offsets.",
        lowest=1,
    )
    offsets_topic_segment_bytes = integer(100 << 20, "Segments of __consumer_offsets.", lowest=14)
    offsets_topic_compression_codec = integer(0, "Accepted; the topic is not compressed.")
    offsets_load_buffer_size = integer(5 << 20, "Accepted.")
    group_min_session_timeout_ms = integer(
        6000,
        "The shortest session timeout of a group's member.",
        lowest=0,
    )
    group_max_session_timeout_ms = integer(
        1_800_000,
        "The longest session timeout of a group's member.",
        lowest=0,
    )
    group_max_size = integer(INT_MAX, "How many members a group may have.", lowest=1)
    group_initial_rebalance_delay_ms = integer(
        0,
        "How long a new group waits for more members.",
        lowest=0,
    )
    group_coordinator_new_enable = boolean(False, "Accepted; there is one coordinator.")
    group_coordinator_rebalance_protocols = strings(
        ("classic", "consumer"),
        "Accepted; both protocols are supported.",
    )
    group_coordinator_threads = integer(1, "Accepted.")
    group_consumer_assignors = strings(
        ("uniform", "range"),
        "The assignors of consumer groups (KIP-848); the first is the default of members that "
        "name none.",
        choices=("uniform", "range"),
        never=((),),
        never_because="one is needed",
    )
    group_consumer_assignment_interval_ms = integer(
        1000,
        "The shortest time between two computations of a consumer group's assignment; 0: at each "
        "change.",
        lowest=0,
        dynamic=True,
    )
    group_consumer_min_assignment_interval_ms = integer(
        0,
        "The least that a group may set as consumer.assignment.interval.ms.",
        lowest=0,
    )
    group_consumer_max_assignment_interval_ms = integer(
        15_000,
        "The most that a group may set as consumer.assignment.interval.ms.",
        lowest=0,
    )
    group_consumer_heartbeat_interval_ms = integer(
        5000,
        "How often members of consumer groups send heartbeats.",
        lowest=1,
    )
    group_consumer_min_heartbeat_interval_ms = integer(
        5000,
        "The least that a group may set as consumer.heartbeat.interval.ms.",
        lowest=1,
    )
    group_consumer_max_heartbeat_interval_ms = integer(
        15_000,
        "The most that a group may set as consumer.heartbeat.interval.ms.",
        lowest=1,
    )
    group_consumer_session_timeout_ms = integer(
        45_000,
        "How long a member of a consumer group may be silent before it is removed.",
        lowest=1,
    )
    group_consumer_min_session_timeout_ms = integer(
        45_000,
        "The least that a group may set as consumer.session.timeout.ms.",
        lowest=1,
    )
    group_consumer_max_session_timeout_ms = integer(
        60_000,
        "The most that a group may set as consumer.session.timeout.ms.",
        lowest=1,
    )
    group_consumer_max_size = integer(
        INT_MAX,
        "How many members a consumer group may have.",
        lowest=1,
    )
    group_consumer_migration_policy = string(
        "bidirectional",
        "Whether groups become consumer groups when a consumer joins (upgrade), and classic "
        "groups when the last consumer has left (downgrade).",
        choices=("disabled", "upgrade", "downgrade", "bidirectional"),
    )
    group_consumer_regex_refresh_interval_ms = integer(
        600_000,
        "How often the patterns of a consumer group are evaluated again although no topic was "
        "created or deleted.",
        lowest=10_000,
    )


class TransactionRows:
    """Transactions and producers."""

    transaction_state_log_num_partitions = integer(
        50,
        "Partitions of __transaction_state, when it is created.",
        lowest=1,
    )
    transaction_state_log_replication_factor = short(
        1,
        "The same as default.replication.factor, for __transaction_state.",
        lowest=1,
    )
    transaction_state_log_min_isr = integer(
        1,
        "The replicas of __transaction_state that have to be in sync for requests of "
        "transactions; no effect with one broker, which has one replica.",
        lowest=1,
    )
    transaction_state_log_segment_bytes = integer(
        100 << 20,
        "Segments of __transaction_state.",
        lowest=14,
    )
    transaction_state_log_load_buffer_size = integer(5 << 20, "Accepted.")
    transaction_max_timeout_ms = integer(
        15 * MINUTE_MS,
        "The longest transaction timeout that a producer may ask for.",
        lowest=1,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = integer(
        10_000,
        "Accepted; transactions are aborted at their timeout.",
        lowest=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = integer(
        HOUR_MS,
        "Accepted; transactional ids expire at their time.",
        lowest=1,
    )
    transaction_partition_verification_enable = boolean(
        True,
        "Accepted; partitions are always verified (KIP-890).",
        dynamic=True,
    )
    transaction_two_phase_commit_enable = boolean(
        False,
        "Whether producers may take part in two-phase commit (KIP-939): their transactions have no "
        "timeout.",
    )
    transactional_id_expiration_ms = integer(
        7 * DAY_MS,
        "How long an unused transactional id is kept.",
        lowest=1,
        deletes=True,
    )
    producer_id_expiration_ms = integer(
        DAY_MS,
        "How long a partition keeps the state of an idle producer.",
        lowest=1,
        dynamic=True,
        deletes=True,
    )
    producer_id_expiration_check_interval_ms = integer(
        600_000,
        "How often expired producers are removed.",
        lowest=1,
    )
    barnabas_producer_snapshot_interval_ms = long(
        30_000,
        "The longest time until a partition's changed producer state is written to a snapshot; "
        "it limits how much a start after a kill reads.",
        lowest=1,
    )
    barnabas_transactions_whole = boolean(False, "Default of the topic's setting.")
    barnabas_transactions_whole_cut_interval_ms = long(
        1_000,
        "How often a cut of the topics with barnabas.transactions.whole is recorded, if something "
        "was committed there; 0: never.",
        lowest=0,
    )
    barnabas_transactions_whole_cut_max_bytes = long(
        4 << 20,
        "The size in memory of the recorded cuts, above which the older ones are thinned out more; "
        "their file has up to twice the size.",
        lowest=1 << 10,
        highest=256 << 20,
    )
    barnabas_transaction_durability = string(
        "flush",
        "flush: a commit is answered when its data and its decision are on the disk; os: when "
        "they are in the operating system's cache.",
        choices=("flush", "os"),
    )


class SecurityRows:
    """Authentication, TLS and authorization."""

    barnabas_authentication_timeout_ms = integer(
        30_000,
        "A connection whose TLS handshake, or whose required authentication, is not complete "
        "after this time is closed; -1: never.",
        lowest=-1,
    )
    sasl_enabled_mechanisms = strings(
        PASSWORD_MECHANISMS,
        "The mechanisms by which clients may authenticate, on a listener with SASL.",
        choices=SASL_MECHANISMS,
    )
    sasl_oauthbearer_jwks_endpoint_url = optional_string(
        "The address of the keys that sign tokens (a JWKS): https://..., or file:///PATH. Only "
        "for OAUTHBEARER, as are the other settings sasl.oauthbearer.*.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = long(
        HOUR_MS,
        "How often the keys are read again.",
        lowest=1,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = long(
        100,
        "How soon the keys are read again after a failure; also the shortest time between two "
        "reads because of unknown keys.",
        lowest=1,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = long(
        10_000,
        "The longest pause between two attempts after failures.",
        lowest=1,
    )
    sasl_oauthbearer_expected_audience = strings(
        (), "The audiences, of which a token has to name one."
    )
    sasl_oauthbearer_expected_issuer = optional_string("The required issuer of tokens.")
    sasl_oauthbearer_clock_skew_seconds = integer(
        30,
        "How far the issuer's clock and the broker's may differ.",
        lowest=0,
    )
    sasl_oauthbearer_scope_claim_name = string("scope", "The claim with a token's scopes.")
    sasl_oauthbearer_sub_claim_name = string("sub", "The claim with the user's name.")
    barnabas_oauthbearer_believe_unsigned_tokens_of_anybody = boolean(
        False,
        "Whether unsigned tokens are accepted: any client can then be any user. Only for tests of "
        "clients.",
    )
    ssl_keystore_location = optional_string(
        "The file with the broker's private key and its certificates.",
    )
    ssl_keystore_type = optional_string("Accepted; the content of the file decides.")
    ssl_keystore_password = password("The password of a PKCS#12 key store.")
    ssl_keystore_key = password("The private key itself, as PEM, instead of a file.")
    ssl_keystore_certificate_chain = password("The certificates, as PEM, instead of a file.")
    ssl_key_password = password("The password of an encrypted private key.")
    ssl_truststore_location = optional_string(
        "The file with the authorities that have to sign clients' certificates.",
    )
    ssl_truststore_type = optional_string("Accepted; the content of the file decides.")
    ssl_truststore_password = password("The password of a PKCS#12 trust store.")
    ssl_truststore_certificates = password("The authorities themselves, as PEM, instead of a file.")
    ssl_client_auth = string(
        "none",
        "Whether clients have to present a certificate.",
        choices=("none", "requested", "required"),
    )
    ssl_enabled_protocols = strings(
        ("TLSv1.2", "TLSv1.3"),
        "The enabled versions of TLS.",
        choices=("TLSv1.2", "TLSv1.3"),
    )
    ssl_principal_mapping_rules = string(
        "DEFAULT",
        "The principal of a client with a certificate: RULE:PATTERN/REPLACEMENT/[LU], ..., "
        "applied to the certificate's subject; DEFAULT: the subject itself.",
    )
    ssl_protocol = string(
        "TLSv1.3",
        "Accepted; ssl.enabled.protocols lists the versions.",
    )
    ssl_cipher_suites = strings((), "The allowed cipher suites of TLS 1.2, by OpenSSL's names.")
    sasl_mechanism_inter_broker_protocol = string("GSSAPI", "Accepted; there is one broker.")
    sasl_server_max_receive_size = integer(
        512 << 10,
        "The largest request that is read from a client that has not authenticated.",
        lowest=1,
    )
    connections_max_reauth_ms = long(
        0,
        "How long an authentication is valid before the client has to authenticate again; 0: as "
        "long as the connection lasts.",
        lowest=0,
    )
    connection_failed_authentication_delay_ms = integer(
        100,
        "How long the refusal of a failed authentication is delayed.",
        lowest=0,
    )
    barnabas_users_file = optional_string(
        "A file of users, for all mechanisms: a line NAME:PASSWORD for each. It is read at the "
        "start.",
    )
    authorizer_class_name = string(
        "",
        "The authorizer: StandardAuthorizer, by ACLs; empty: everything is allowed.",
        choices=(
            "",
            "StandardAuthorizer",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
    )
    super_users_text = string(
        "",
        "Principals that are allowed everything, whatever ACLs say: such as User:admin, separated "
        "by semicolons.",
        name="super.users",
    )
    allow_everyone_if_no_acl_found = boolean(
        False,
        "Whether every principal may use a resource that has no ACL.",
    )


class ObservationRows:
    """The audit log, and the format of the log."""

    barnabas_audit_log = optional_string(
        "A file that gets a line (JSON) for each operation that is allowed or refused, with its "
        "principal; empty: none.",
    )
    barnabas_log_format = string(
        "text",
        "The format of the log on standard error: text, a line for people, or json, a JSON object "
        "on each line.",
        choices=("text", "json"),
    )


class BrokerRows(
    NodeRows,
    ConnectionRows,
    LogRows,
    GroupRows,
    ShareRows,
    StreamsRows,
    TransactionRows,
    SecurityRows,
    ObservationRows,
    MetricsRows,
    ConsoleRows,
    StandbyRows,
):
    """All settings of the broker."""


BROKER_SETTINGS = rows_of(BrokerRows)
