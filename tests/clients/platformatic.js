// What @platformatic/kafka does against a broker: `node platformatic.js HOST:PORT`.
const assert = require("node:assert");
const { Admin, Consumer, Producer, stringDeserializers, stringSerializers } = require("@platformatic/kafka");

const client = { clientId: "try", bootstrapBrokers: [process.argv[2]] };
const topic = "in";
const sent = 50;
let passed = 0;

async function step(name, run) {
  try {
    await run();
    passed += 1;
  } catch (error) {
    console.log("FAILED", name, error.message);
  }
}

function producer(settings) {
  return new Producer({ ...client, serializers: stringSerializers, ...settings });
}

async function read(consumer) {
  const stream = await consumer.consume({ topics: [topic], mode: "earliest" });
  const timer = setTimeout(() => stream.close(), 20000);
  const values = [];
  for await (const message of stream) {
    values.push(message.value);
    if (message.value === "committed") break;
  }
  clearTimeout(timer);
  await stream.close();
  assert.equal(values.length, sent + 2);
  assert(!values.includes("aborted"));
}

async function main() {
  const admin = new Admin(client);
  await step("CreateTopics", () => admin.createTopics({ topics: [topic], partitions: 1, replicas: 1 }));
  const plain = producer({});
  const messages = Array.from({ length: sent }, (_, each) => ({ topic, key: `${each}`, value: "value" }));
  await step("produce", () => plain.send({ messages }));
  await plain.close();
  const idempotent = producer({ idempotent: true });
  await step("produce, idempotent", () => idempotent.send({ messages: [{ topic, value: "value" }] }));
  await idempotent.close();
  const transactional = producer({ idempotent: true, transactionalId: "first" });
  await step("abort", async () => {
    const transaction = await transactional.beginTransaction();
    await transaction.send({ messages: [{ topic, value: "aborted" }] });
    await transaction.abort();
  });
  await step("commit", async () => {
    const transaction = await transactional.beginTransaction();
    await transaction.send({ messages: [{ topic, value: "committed" }] });
    await transaction.commit();
  });
  await transactional.close();
  const settings = { groupId: "group", isolationLevel: 1, deserializers: stringDeserializers };
  const consumer = new Consumer({ ...client, ...settings });
  await step("a member reads what is committed", () => read(consumer));
  await consumer.close(true);
  await step("ListGroups", async () => assert((await admin.listGroups()).has("group")));
  await step("DeleteTopics", () => admin.deleteTopics({ topics: [topic] }));
  await admin.close();
  console.log(`${passed} steps passed`);
  process.exit(0);
}

main();
