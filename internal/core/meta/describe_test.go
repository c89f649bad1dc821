package meta

import (
	"encoding/json"
	"strings"
	"testing"

	"tidemark/internal/core/types"
)

func TestDescribe(t *testing.T) {
	s := newStored()
	ops := append(putTopic(1, "a", 1), putPartition(1, 0),
		Put(keys.Partition(id(1), 1), exampleMirrorPartition().Encode()),
		Put(keys.Partition(id(1), 2), []byte(`{"v":9}`)),
		Put(keys.Mirror("standby"), MirrorRecord{Name: "standby", Want: WantRunning, Bootstrap: []string{"kafka:9092"},
			ClientConfig: map[string]string{"sasl.jaas.config": "x password=\"hush\"", "ssl.keystore.password": "hush", "client.id": "c"}}.Encode()),
		Put(keys.BrokerConfig(types.NoBroker), BrokerConfigRecord{Configs: map[string]string{"ssl.key.password": "hush", "a": "b"}}.Encode()),
		Put(keys.Broker(1), BrokerRecord{ID: 1, Endpoints: []Endpoint{{"PLAINTEXT", "h", 9092, "PLAINTEXT"}}, DirectoryID: "d", CleanShutdownEpoch: 7}.Encode()),
		Put("/tidemark/c1/names/a/b", []byte("x")))
	image, _ := Empty("c1").Apply(s.do(ops...))
	want := `cluster c1 at revision 2

KEY                                  REVISION  VALUE
brokers/1                            2         PLAINTEXT://h:9092 folder d clean since epoch 7
configs/brokers/default              2         a=b ssl.key.password=[hidden]
mirrors/standby                      2         running from kafka:9092
names/a                              2         AAEBAAAAAAAAAAAAAAAAAA
names/a/b                            0         unreadable: metadata: "/tidemark/c1/names/a/b": malformed metadata key; nothing of ours has such a key: delete it
partitions/AAEBAAAAAAAAAAAAAAAAAA/0  2         leader 1 epoch 0 replicas [1] isr [1] writable root@0:0
partitions/AAEBAAAAAAAAAAAAAAAAAA/1  2         leader 1 epoch 4 replicas [1] isr [1] read-only root@0:0 mirror standby MIRRORING source 0-4720
partitions/AAEBAAAAAAAAAAAAAAAAAA/2  2         unreadable: metadata key /tidemark/c1/partitions/AAEBAAAAAAAAAAAAAAAAAA/2: unknown version 9 (this tidemark reads 1); a newer tidemark wrote it: start that version, or restore the metadata from before the upgrade
topics/AAEBAAAAAAAAAAAAAAAAAA        2         a, 1 partitions
`
	d := Describe(image, "")
	if got := d.Table(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	data, err := json.Marshal(d)
	if err != nil || strings.Contains(string(data), "hush") || strings.Count(string(data), Hidden) != 3 {
		t.Errorf("%v: %s", err, data)
	}
	if m, _ := image.Mirror("standby"); m.Record.ClientConfig["ssl.keystore.password"] != "hush" {
		t.Error("describing changed the image")
	}
	if n := len(Describe(image, "partitions/").Entries); n != 3 {
		t.Errorf("%d entries below partitions/", n)
	}
}
