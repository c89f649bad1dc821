// Reads COUNT records of TOPIC in GROUP with kafkajs, prints each value, commits exactly behind them, and ends.
// Usage: node group.js BOOTSTRAP GROUP TOPIC COUNT
const { Kafka, logLevel } = require('kafkajs');

const [, , bootstrap, groupId, topic, countText] = process.argv;
const count = Number(countText);
const kafka = new Kafka({ clientId: 'kafkajs', brokers: bootstrap.split(','), logLevel: logLevel.ERROR });
const consumer = kafka.consumer({ groupId, sessionTimeout: 10000, heartbeatInterval: 500, maxWaitTimeInMs: 200 });

async function main() {
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  let seen = 0;
  await new Promise((resolve, reject) => {
    consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        if (seen >= count) return;
        seen++;
        console.log(message.value.toString());
        if (seen === count) {
          await consumer.commitOffsets([{ topic, partition, offset: (BigInt(message.offset) + 1n).toString() }]);
          resolve();
        }
      },
    }).catch(reject);
  });
  await consumer.disconnect();
}

main().then(() => process.exit(0), (e) => { console.error(e); process.exit(1); });
