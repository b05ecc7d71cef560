import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What Apache Kafka's own client does against a broker: `java Steps.java HOST:PORT`. */
class Steps {
    interface Step {
        void run() throws Exception;
    }

    static final int RECORDS = 1000;
    static final int COMMITS = 20;
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static String servers;
    static int passed = 0;

    static void step(String name, Step step) {
        try {
            step.run();
            passed++;
        } catch (Throwable error) {
            System.out.println("FAILED " + name + ": " + error);
        }
    }

    static void expect(Object wanted, Object found) {
        if (!wanted.equals(found)) {
            throw new AssertionError(found + " instead of " + wanted);
        }
    }

    static KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", servers);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    public static void main(String[] arguments) {
        servers = arguments[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            topicsAndSettings(admin);
            for (String codec : CODECS) {
                step("produce, " + codec, () -> produce(codec));
            }
            step("abort and commit", Steps::abortAndCommit);
            step("read, transform, write", Steps::readTransformWrite);
            step("a member of the consumer protocol (KIP-848)", Steps::readAsConsumerGroup);
            step("a producer is fenced", Steps::fence);
            transactionsAndGroups(admin);
            step("DeleteTopics", () -> admin.deleteTopics(List.of("in", "out")).all().get());
        }
        System.out.println(passed + " steps passed");
        System.exit(0);
    }

    static void topicsAndSettings(Admin admin) {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, "in");
        step("CreateTopics", () -> admin.createTopics(List.of(
                new NewTopic("in", 3, (short) 1), new NewTopic("out", 2, (short) 1))).all().get());
        step("CreatePartitions", () -> admin.createPartitions(
                Map.of("in", NewPartitions.increaseTo(4))).all().get());
        step("DescribeTopicPartitions", () -> expect(4, admin.describeTopics(List.of("in"))
                .allTopicNames().get().get("in").partitions().size()));
        step("DescribeCluster", () -> admin.describeCluster().nodes().get());
        step("IncrementalAlterConfigs", () -> admin.incrementalAlterConfigs(Map.of(topic,
                List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "100000"),
                        AlterConfigOp.OpType.SET)))).all().get());
        step("DescribeConfigs", () -> expect("100000", admin.describeConfigs(List.of(topic))
                .all().get().get(topic).get("retention.ms").value()));
        step("DescribeLogDirs", () -> admin.describeLogDirs(
                List.of(admin.describeCluster().controller().get().id()))
                .allDescriptions().get());
        step("features", () -> admin.describeFeatures().featureMetadata().get());
        step("DescribeQuorum", () -> admin.describeMetadataQuorum().quorumInfo().get());
    }

    static void produce(String codec) throws Exception {
        try (var producer = producer(Map.of("compression.type", codec, "linger.ms", 5))) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < RECORDS; i++) {
                sent.add(producer.send(new ProducerRecord<>("in", "key" + i, "value" + i)));
            }
            for (Future<RecordMetadata> each : sent) {
                each.get();
            }
        }
    }

    static void abortAndCommit() throws Exception {
        try (var producer = producer(Map.of("transactional.id", "first"))) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("in", "key", "aborted")).get();
            producer.abortTransaction();
            for (int i = 0; i < COMMITS; i++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("in", "key", "committed"));
                producer.commitTransaction();
            }
        }
    }

    static void readTransformWrite() {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "group.id", "group",
                "auto.offset.reset", "earliest", "isolation.level", "read_committed",
                "enable.auto.commit", false, "max.poll.records", 700);
        int wanted = CODECS.size() * RECORDS + COMMITS;
        int count = 0;
        try (var consumer = new KafkaConsumer<>(
                settings, new StringDeserializer(), new StringDeserializer());
                var producer = producer(Map.of("transactional.id", "second"))) {
            producer.initTransactions();
            consumer.subscribe(List.of("in"));
            long end = System.currentTimeMillis() + 60000;
            while (count < wanted && System.currentTimeMillis() < end) {
                var records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                for (var each : records) {
                    expect(false, each.value().equals("aborted"));
                    producer.send(new ProducerRecord<>("out", each.key(), each.value()));
                    count++;
                }
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (TopicPartition each : records.partitions()) {
                    offsets.put(each, new OffsetAndMetadata(consumer.position(each)));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                producer.commitTransaction();
            }
        }
        expect(wanted, count);
    }

    static void readAsConsumerGroup() {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "group.id", "today",
                "group.protocol", "consumer", "auto.offset.reset", "earliest",
                "isolation.level", "read_committed");
        int wanted = CODECS.size() * RECORDS + COMMITS;
        int count = 0;
        try (var consumer = new KafkaConsumer<>(
                settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("out"));
            long end = System.currentTimeMillis() + 60000;
            while (count < wanted && System.currentTimeMillis() < end) {
                count += consumer.poll(Duration.ofMillis(500)).count();
            }
            consumer.commitSync();
        }
        expect(wanted, count);
    }

    static void fence() throws Exception {
        try (var old = producer(Map.of("transactional.id", "fenced"));
                var successor = producer(Map.of("transactional.id", "fenced"))) {
            old.initTransactions();
            old.beginTransaction();
            old.send(new ProducerRecord<>("in", "key", "lost")).get();
            successor.initTransactions();
            try {
                old.commitTransaction();
                throw new AssertionError("it was not fenced");
            } catch (ProducerFencedException | InvalidProducerEpochException wanted) {
                old.close(Duration.ZERO);
            }
        }
    }

    static void transactionsAndGroups(Admin admin) {
        TopicPartition partition = new TopicPartition("in", 0);
        step("ListTransactions", () -> expect(3, admin.listTransactions().all().get().size()));
        step("DescribeTransactions", () -> admin.describeTransactions(
                List.of("first")).all().get());
        step("DescribeProducers", () -> admin.describeProducers(List.of(partition)).all().get());
        step("fenceProducers", () -> admin.fenceProducers(List.of("first")).all().get());
        step("ListGroups", () -> expect(2, admin.listConsumerGroups().all().get().size()));
        step("DescribeGroups", () -> admin.describeConsumerGroups(List.of("group")).all().get());
        step("OffsetFetch", () -> expect(4, admin.listConsumerGroupOffsets("group")
                .partitionsToOffsetAndMetadata().get().size()));
        step("OffsetCommit", () -> admin.alterConsumerGroupOffsets(
                "group", Map.of(partition, new OffsetAndMetadata(1))).all().get());
        step("OffsetDelete", () -> admin.deleteConsumerGroupOffsets(
                "group", Set.of(partition)).all().get());
        step("ListOffsets", () -> {
            for (OffsetSpec spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(),
                    OffsetSpec.maxTimestamp(), OffsetSpec.forTimestamp(1))) {
                admin.listOffsets(Map.of(partition, spec)).all().get();
            }
        });
        step("DeleteRecords", () -> admin.deleteRecords(
                Map.of(partition, RecordsToDelete.beforeOffset(1))).all().get());
        step("ElectLeaders", () -> admin.electLeaders(ElectionType.PREFERRED, null).all().get());
        step("ListPartitionReassignments", () -> admin.listPartitionReassignments()
                .reassignments().get());
        step("ListConfigResources", () -> admin.listClientMetricsResources().all().get());
        step("DeleteGroups", () -> admin.deleteConsumerGroups(List.of("group")).all().get());
    }
}
