import java.io.FileWriter;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a share group, until it is killed:
 * `java ShareWorker.java HOST:PORT GROUP TOPIC DIARY SEED`.
 *
 * It accepts most records, releases, renews and rejects others. Before it commits, it writes to its
 * diary which records it is about to finish (["attempt", [[partition, value], …]]), and after the
 * answer which ones are finished (["done", [value, …]]); tests/tools/torture/sharing.py reads that.
 */
class ShareWorker {
    public static void main(String[] arguments) throws Exception {
        Random random = new Random(arguments[4].hashCode());
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("reconnect.backoff.ms", 20);
        settings.put("reconnect.backoff.max.ms", 200);
        try (var member = new KafkaShareConsumer<>(
                    settings, new StringDeserializer(), new StringDeserializer());
                var diary = new FileWriter(arguments[3], true)) {
            member.subscribe(List.of(arguments[2]));
            while (true) {
                try {
                    round(member, diary, random);
                } catch (KafkaException error) {
                    say(diary, "failed", List.of(quoted(error.toString())));
                }
            }
        }
    }

    static void round(KafkaShareConsumer<String, String> member, FileWriter diary, Random random)
            throws Exception {
        List<ConsumerRecord<String, String>> finished = new ArrayList<>();
        List<ConsumerRecord<String, String>> renewed = new ArrayList<>();
        for (var record : member.poll(Duration.ofMillis(500))) {
            AcknowledgeType kind = drawn(random);
            member.acknowledge(record, kind);
            if (kind == AcknowledgeType.ACCEPT || kind == AcknowledgeType.REJECT) {
                finished.add(record);
            } else if (kind == AcknowledgeType.RENEW) {
                renewed.add(record);
            }
        }
        say(diary, "attempt", finished.stream()
                .map(one -> "[" + one.partition() + ", " + quoted(one.value()) + "]").toList());
        var stored = member.commitSync(Duration.ofSeconds(10)).entrySet().stream()
                .filter(answer -> answer.getValue().isEmpty())
                .map(answer -> answer.getKey().partition()).collect(Collectors.toSet());
        say(diary, "done", finished.stream().filter(one -> stored.contains(one.partition()))
                .map(one -> quoted(one.value())).toList());
        say(diary, "renewed", renewed.stream().filter(one -> stored.contains(one.partition()))
                .map(one -> quoted(one.value())).toList());
    }

    static AcknowledgeType drawn(Random random) {
        int number = random.nextInt(20);
        return number < 2 ? AcknowledgeType.RELEASE
                : number < 4 ? AcknowledgeType.RENEW
                : number < 5 ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT;
    }

    static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + '"';
    }

    static void say(FileWriter diary, String kind, List<String> parts) throws Exception {
        diary.write("[\"" + kind + "\", [" + String.join(", ", parts) + "]]\n");
        diary.flush();
    }
}
