// kafkajs on a listener with SASL: `node kafkajs_secured.js HOST:PORT CA.pem TOKEN FOREIGN-TOKEN`.
// "-" for CA.pem: the listener has no TLS.
// The user is alice, her password her-secret.
const assert = require("node:assert");
const fs = require("node:fs");
const { Kafka, logLevel } = require("kafkajs");

const [broker, authority, token, foreignToken] = process.argv.slice(2);
const topic = "t";
const alice = { username: "alice", password: "her-secret" };
const bearer = (value) => ({ mechanism: "oauthbearer", oauthBearerProvider: async () => ({ value }) });
let passed = 0;

function client(sasl, ssl) {
  return new Kafka({
    brokers: [broker], logLevel: logLevel.NOTHING, retry: { retries: 0 }, sasl, ssl,
  });
}

const hasTls = authority !== "-";
const ssl = hasTls ? { ca: [fs.readFileSync(authority)] } : false;

async function letIn(sasl) {
  const kafka = client(sasl, ssl);
  const producer = kafka.producer();
  await producer.connect();
  await producer.send({ topic, messages: [{ value: sasl.mechanism }] });
  await producer.disconnect();
}

async function refused(sasl, ssl, words) {
  const admin = client(sasl, ssl).admin();
  // kafkajs takes a refusal of a token for a success, and is hung up on at its first request
  await assert.rejects(admin.connect().then(() => admin.listTopics()), words);
  await admin.disconnect();
}

async function step(name, run) {
  try {
    await run();
    passed += 1;
  } catch (error) {
    console.log("FAILED", name, error.message);
  }
}

async function main() {
  for (const mechanism of ["plain", "scram-sha-256", "scram-sha-512"]) {
    await step(mechanism, () => letIn({ mechanism, ...alice }));
    const wrong = { mechanism, username: "alice", password: "wrong" };
    await step(`${mechanism}, wrong password`, () => refused(wrong, ssl, /authentication failed/i));
  }
  await step("oauthbearer", () => letIn(bearer(token)));
  await step("oauthbearer, foreign", () => refused(bearer(foreignToken), ssl, /./));
  const plain = { mechanism: "plain", ...alice };
  if (hasTls) {
    await step("unknown authority", () => refused(plain, true, /certificate/i));
    await step("without TLS", () => refused(plain, false, /./));
  } else {
    await step("with TLS", () => refused(plain, true, /./));
  }
  console.log(`${passed} steps passed`);
  process.exit(0);
}

main();
