import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends records with Java's own producer, idempotently and with acks=all, until its standard input ends. Usage:
 * Sender BOOTSTRAP NAME SEED TOPICS PARTITIONS EVERY_MS. Prints, each on one line, before a record is sent "send TOPIC
 * PARTITION NUMBER VALUE", and when its outcome is known "acked NUMBER OFFSET" or "failed NUMBER REASON".
 *
 * As an application would, it gives a record up after a while (its outcome is unknown then), and makes a new producer when
 * the one that it has can't go on.
 */
public final class Sender {
    private static final int OUTSTANDING_MAX = 400;

    private static synchronized void say(String line) {
        System.out.println(line);
    }

    /** A record that was given up after delivery.timeout.ms leaves a producer that goes on. */
    private static boolean isFinal(Exception e) {
        return !(e instanceof RetriableException);
    }

    public static void main(String[] args) throws Exception {
        String name = args[1];
        String[] topics = args[3].split(",");
        int partitions = Integer.parseInt(args[4]);
        long everyMs = Long.parseLong(args[5]);
        Random random = new Random(Long.parseLong(args[2]));
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("key.serializer", ByteArraySerializer.class.getName());
        p.put("value.serializer", ByteArraySerializer.class.getName());
        p.put("acks", "all");
        p.put("enable.idempotence", "true");
        p.put("linger.ms", "5");
        p.put("request.timeout.ms", "5000");
        p.put("delivery.timeout.ms", "60000");
        p.put("retry.backoff.ms", "100");
        p.put("metadata.max.age.ms", "2000");
        p.put("reconnect.backoff.max.ms", "500");
        p.put("max.block.ms", "600000");
        Semaphore room = new Semaphore(OUTSTANDING_MAX);
        KafkaProducer<byte[], byte[]> producer = null;
        AtomicBoolean ended = new AtomicBoolean(true); // of the present producer
        for (int i = 0; System.in.available() == 0; i++) {
            if (ended.get()) {
                if (producer != null) {
                    producer.close(Duration.ZERO); // what is under way fails
                }
                producer = new KafkaProducer<>(p);
                ended = new AtomicBoolean(false);
            }
            room.acquire();
            String topic = topics[random.nextInt(topics.length)];
            int partition = random.nextInt(partitions);
            String value = name + "-" + i + "-" + "x".repeat(random.nextInt(1500));
            int number = i;
            AtomicBoolean over = ended;
            say("send " + topic + " " + partition + " " + number + " " + value);
            try {
                producer.send(new ProducerRecord<>(topic, partition, null, value.getBytes(StandardCharsets.UTF_8)), (m, e) -> {
                    room.release();
                    say(e == null ? "acked " + number + " " + m.offset() : "failed " + number + " " + e);
                    if (e != null && isFinal(e)) {
                        over.set(true);
                    }
                });
            } catch (KafkaException e) { // the callback isn't called
                room.release();
                say("failed " + number + " " + e);
                over.set(true);
            }
            Thread.sleep(everyMs);
        }
        if (producer != null) {
            producer.close(); // flushes
        }
    }
}
