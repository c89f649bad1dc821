import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes records with Java's own producer. Usage: Load BOOTSTRAP SPEC...
 * Each SPEC is a list of key=value joined by commas and runs in a thread of its own:
 * topic, count, codec (none, gzip, snappy, lz4, zstd), acks (all, 1, 0), idempotent (true, false),
 * txn (none, commit, abort, mix), perTxn, min and max (value bytes), keys (0: null keys; else that many distinct ones),
 * nulls (per cent of null values), headers (at most so many), seed, rate (records a second, 0: as fast as it goes).
 * Prints one line of JSON for each SPEC: topic, sent, acked, failed.
 */
public final class Load {
    private final String bootstrap;
    private final Map<String, String> spec = new HashMap<>();

    private Load(String bootstrap, String text) {
        this.bootstrap = bootstrap;
        for (String pair : text.split(",")) {
            String[] kv = pair.split("=", 2);
            spec.put(kv[0], kv[1]);
        }
    }

    private long num(String key, long otherwise) {
        return spec.containsKey(key) ? Long.parseLong(spec.get(key)) : otherwise;
    }

    private Properties config(boolean transactional, long seed) {
        Properties p = new Properties();
        p.put("bootstrap.servers", bootstrap);
        p.put("key.serializer", ByteArraySerializer.class.getName());
        p.put("value.serializer", ByteArraySerializer.class.getName());
        p.put("compression.type", spec.getOrDefault("codec", "none"));
        p.put("acks", spec.getOrDefault("acks", "all"));
        p.put("enable.idempotence", spec.getOrDefault("idempotent", "true"));
        p.put("linger.ms", spec.getOrDefault("linger", "5"));
        p.put("batch.size", spec.getOrDefault("batch", "16384"));
        p.put("delivery.timeout.ms", spec.getOrDefault("deliveryMs", "120000"));
        p.put("request.timeout.ms", spec.getOrDefault("requestMs", "15000"));
        if (transactional) {
            p.put("transactional.id", "load-" + spec.get("topic") + "-" + seed);
        }
        return p;
    }

    private byte[] value(Random random, int min, int max, long i) {
        int size = min + random.nextInt(max - min + 1);
        byte[] b = new byte[Math.max(size, 8)];
        String words = "offset epoch leader follower mirror log segment record batch ";
        byte[] text = words.getBytes(StandardCharsets.US_ASCII);
        int shift = random.nextInt(text.length);
        for (int j = 8; j < b.length; j++) {
            b[j] = random.nextInt(8) == 0 ? (byte) random.nextInt(256) : text[(j + shift) % text.length];
        }
        ByteBuffer.wrap(b).putLong(i);
        return b;
    }

    private ProducerRecord<byte[], byte[]> record(Random random, long i) {
        int keys = (int) num("keys", 0);
        byte[] key = keys == 0 ? null : ("key-" + random.nextInt(keys)).getBytes(StandardCharsets.US_ASCII);
        byte[] value = random.nextInt(100) < num("nulls", 0) ? null
            : value(random, (int) num("min", 20), (int) num("max", 300), i);
        RecordHeaders headers = new RecordHeaders();
        int n = random.nextInt((int) num("headers", 0) + 1);
        for (int h = 0; h < n; h++) {
            headers.add("h" + h, h % 2 == 0 ? ("v" + i).getBytes(StandardCharsets.US_ASCII) : null);
        }
        return new ProducerRecord<>(spec.get("topic"), null, null, key, value, headers);
    }

    private void run() throws Exception {
        long count = num("count", 1000), seed = num("seed", 1), rate = num("rate", 0), perTxn = num("perTxn", 100);
        String txn = spec.getOrDefault("txn", "none");
        boolean transactional = !txn.equals("none");
        Random random = new Random(seed);
        AtomicLong acked = new AtomicLong(), failed = new AtomicLong();
        long begin = System.nanoTime();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config(transactional, seed))) {
            if (transactional) {
                producer.initTransactions();
            }
            for (long i = 0; i < count; i++) {
                if (transactional && i % perTxn == 0) {
                    producer.beginTransaction();
                }
                producer.send(record(random, i), (meta, error) -> (error == null ? acked : failed).incrementAndGet());
                if (transactional && (i % perTxn == perTxn - 1 || i == count - 1)) {
                    if (txn.equals("abort") || (txn.equals("mix") && random.nextBoolean())) {
                        producer.flush();
                        producer.abortTransaction();
                    } else {
                        producer.commitTransaction();
                    }
                }
                if (rate > 0) {
                    long due = begin + i * 1_000_000_000L / rate, now = System.nanoTime();
                    if (due > now + 1_000_000L) {
                        Thread.sleep((due - now) / 1_000_000L);
                    }
                }
            }
            producer.flush();
        }
        synchronized (System.out) {
            System.out.printf("{\"topic\":\"%s\",\"sent\":%d,\"acked\":%d,\"failed\":%d,\"ms\":%d}%n",
                spec.get("topic"), count, acked.get(), failed.get(), (System.nanoTime() - begin) / 1_000_000L);
            System.out.flush();
        }
    }

    public static void main(String[] args) throws Exception {
        List<Thread> threads = new ArrayList<>();
        List<Throwable> errors = new ArrayList<>();
        for (int i = 1; i < args.length; i++) {
            Load load = new Load(args[0], args[i]);
            Thread t = new Thread(() -> {
                try {
                    load.run();
                } catch (Throwable e) {
                    synchronized (errors) {
                        errors.add(e);
                    }
                    e.printStackTrace();
                }
            });
            t.start();
            threads.add(t);
        }
        for (Thread t : threads) {
            t.join();
        }
        System.exit(errors.isEmpty() ? 0 : 1);
    }
}
