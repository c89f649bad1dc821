import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.Semaphore;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writers with Java's own producer, idempotently and with acks=all, as many as its standard input asks for:
 *
 * <pre>
 * begin NAME BOOTSTRAP EVERY_MS TOPIC/PARTITION,...
 * end NAME PATIENCE_MS        what has no outcome by then is given up
 * </pre>
 *
 * It prints, each on one line, before a record is sent "send NAME TOPIC PARTITION NUMBER VALUE", when its outcome is
 * known "acked NAME NUMBER OFFSET" or "failed NAME NUMBER REASON", and when a writer is done "ended NAME".
 */
public final class Writer extends Thread {
    private static final int OUTSTANDING_MAX = 300;
    private static final int VALUE_MAX = 800;

    private final String name;
    private final String[] partitions;
    private final long everyMs;
    private final Properties properties = new Properties();
    private volatile long patienceMs = -1;

    private Writer(String name, String bootstrap, long everyMs, String[] partitions) {
        this.name = name;
        this.everyMs = everyMs;
        this.partitions = partitions;
        properties.put("bootstrap.servers", bootstrap);
        properties.put("key.serializer", ByteArraySerializer.class.getName());
        properties.put("value.serializer", ByteArraySerializer.class.getName());
        properties.put("acks", "all");
        properties.put("enable.idempotence", "true");
        properties.put("linger.ms", "5");
        properties.put("request.timeout.ms", "5000");
        properties.put("delivery.timeout.ms", "120000");
        properties.put("retry.backoff.ms", "100");
        properties.put("metadata.max.age.ms", "2000");
        properties.put("reconnect.backoff.max.ms", "500");
        properties.put("max.block.ms", "5000");
    }

    private static synchronized void say(String line) {
        System.out.println(line);
    }

    @Override
    public void run() {
        Random random = new Random(name.hashCode());
        Semaphore room = new Semaphore(OUTSTANDING_MAX);
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(properties);
        for (int i = 0; patienceMs < 0; i++) {
            try {
                Thread.sleep(everyMs);
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
            if (!room.tryAcquire()) {
                continue;
            }
            String[] at = partitions[random.nextInt(partitions.length)].split("/");
            int number = i;
            String value = name + "_" + i + "-" + "x".repeat(random.nextInt(VALUE_MAX));
            say("send " + name + " " + at[0] + " " + at[1] + " " + number + " " + value);
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(at[0], Integer.parseInt(at[1]), null, value.getBytes(StandardCharsets.UTF_8));
            try {
                producer.send(record, (m, e) -> {
                    room.release();
                    say(e == null ? "acked " + name + " " + number + " " + m.offset() : "failed " + name + " " + number + " " + e);
                });
            } catch (KafkaException e) { // the callback isn't called: this producer can't go on
                room.release();
                say("failed " + name + " " + number + " " + e);
                producer.close(Duration.ZERO);
                producer = new KafkaProducer<>(properties);
            }
        }
        producer.close(Duration.ofMillis(patienceMs));
        say("ended " + name);
    }

    public static void main(String[] args) throws Exception {
        Map<String, Writer> writers = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("begin")) {
                Writer w = new Writer(words[1], words[2], Long.parseLong(words[3]), words[4].split(","));
                w.setDaemon(true);
                writers.put(words[1], w);
                w.start();
            } else {
                writers.remove(words[1]).patienceMs = Long.parseLong(words[2]);
            }
        }
    }
}
