import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes transactions without end, each with one record in every partition of a topic that says which transaction it is.
 * Usage: Transactions BOOTSTRAP TOPIC PARTITIONS NAME
 */
public final class Transactions {
    private Transactions() { }

    public static void main(String[] args) {
        String topic = args[1], name = args[3];
        int partitions = Integer.parseInt(args[2]);
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("key.serializer", ByteArraySerializer.class.getName());
        p.put("value.serializer", ByteArraySerializer.class.getName());
        p.put("transactional.id", "transactions-" + name);
        p.put("linger.ms", "0");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p)) {
            producer.initTransactions();
            for (long i = 0;; i++) {
                producer.beginTransaction();
                byte[] value = (name + i).getBytes(StandardCharsets.US_ASCII);
                for (int n = 0; n < partitions; n++) {
                    producer.send(new ProducerRecord<>(topic, n, null, value));
                }
                producer.commitTransaction();
            }
        }
    }
}
