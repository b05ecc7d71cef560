// What kafkajs does against a broker: `node kafkajs.js HOST:PORT`.
const assert = require("node:assert");
const { CompressionTypes, Kafka, logLevel } = require("kafkajs");

const kafka = new Kafka({ brokers: [process.argv[2]], logLevel: logLevel.NOTHING });
let passed = 0;

async function step(name, run) {
  try {
    await run();
    passed += 1;
  } catch (error) {
    console.log("FAILED", name, error.message);
  }
}

const topic = "in";
const sent = 100;

async function topicsAndSettings(admin) {
  const topics = [{ topic, numPartitions: 3 }];
  await step("CreateTopics", async () =>
    assert(await admin.createTopics({ topics, waitForLeaders: true })));
  const topicPartitions = [{ topic, count: 4 }];
  await step("CreatePartitions", () => admin.createPartitions({ topicPartitions }));
  const configEntries = [{ name: "retention.ms", value: "100000" }];
  await step("AlterConfigs", () =>
    admin.alterConfigs({ resources: [{ type: 2, name: topic, configEntries }] }));
  await step("DescribeConfigs", async () => {
    const { resources } = await admin.describeConfigs({ resources: [{ type: 2, name: topic }] });
    const found = resources[0].configEntries.find((each) => each.configName === "retention.ms");
    assert.equal(found.configValue, "100000");
  });
  await step("cluster", async () => assert((await admin.describeCluster()).brokers.length >= 1));
}

async function produce() {
  const producer = kafka.producer();
  await producer.connect();
  const messages = Array.from({ length: sent }, (_, each) => ({
    key: `key${each}`, value: `value${each}`, headers: { name: "text" },
  }));
  for (const [name, compression] of Object.entries({ none: CompressionTypes.None, gzip: CompressionTypes.GZIP }))
    await step(`produce, ${name}`, () => producer.send({ topic, compression, messages }));
  await producer.disconnect();
  const idempotent = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await idempotent.connect();
  await step("produce, idempotent", () =>
    idempotent.send({ topic, messages: [{ key: "key", value: "idempotent" }] }));
  await idempotent.disconnect();
}

async function transactions(admin) {
  const producer = kafka.producer({ transactionalId: "first", maxInFlightRequests: 1 });
  await producer.connect();
  await step("abort", async () => {
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: [{ value: "aborted" }] });
    await transaction.abort();
  });
  await step("commit, with offsets", async () => {
    const transaction = await producer.transaction();
    await transaction.send({ topic, messages: [{ value: "committed" }] });
    const topics = [{ topic, partitions: [{ partition: 0, offset: "5" }] }];
    await transaction.sendOffsets({ consumerGroupId: "first", topics });
    await transaction.commit();
  });
  await producer.disconnect();
  await step("OffsetFetch", async () => {
    const [{ partitions }] = await admin.fetchOffsets({ groupId: "first", topics: [topic] });
    assert.equal(partitions.find((each) => each.partition === 0).offset, "5");
  });
}

async function groups(admin) {
  const values = [];
  const consumers = [1, 2].map(() => kafka.consumer({ groupId: "second" }));
  for (const consumer of consumers) {
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    await consumer.run({
      eachMessage: async ({ message }) => void values.push(message.value.toString()),
    });
  }
  await step("two members read what is committed", async () => {
    const wanted = 2 * sent + 2;
    for (const end = Date.now() + 30000; values.length < wanted && Date.now() < end; )
      await new Promise((resolve) => setTimeout(resolve, 100));
    assert.equal(values.length, wanted);
    assert(!values.includes("aborted"));
  });
  await step("DescribeGroups", async () => {
    const [group] = (await admin.describeGroups(["second"])).groups;
    assert.deepEqual([group.members.length, group.state], [2, "Stable"]);
  });
  await step("ListGroups", async () =>
    assert((await admin.listGroups()).groups.some((each) => each.groupId === "second")));
  for (const consumer of consumers) await consumer.disconnect();
  await step("DeleteGroups", () => admin.deleteGroups(["second"]));
}

async function rest(admin) {
  const partitions = [{ partition: 0, offset: "3" }];
  await step("OffsetCommit", () => admin.setOffsets({ groupId: "third", topic, partitions }));
  await step("reset", () => admin.resetOffsets({ groupId: "third", topic, earliest: true }));
  await step("ListOffsets", async () =>
    assert.equal((await admin.fetchTopicOffsetsByTimestamp(topic, Date.now() - 60000)).length, 4));
  await step("DeleteRecords", () =>
    admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "1" }] }));
  await step("ListPartitionReassignments", () => admin.listPartitionReassignments({}));
  await step("DeleteTopics", () => admin.deleteTopics({ topics: [topic] }));
}

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await topicsAndSettings(admin);
  await produce();
  await transactions(admin);
  await groups(admin);
  await rest(admin);
  await admin.disconnect();
  console.log(`${passed} steps passed`);
}

main();
