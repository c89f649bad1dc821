package meta

import (
	"encoding"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// recordTypes are the records that the store holds.
var recordTypes = []any{
	ACLRecord{}, BrokerConfigRecord{}, BrokerRecord{}, ClusterRecord{}, ControllerRecord{}, DrillRecord{}, FeaturesRecord{}, MirrorRecord{},
	NameRecord{}, NodeRecord{}, PartitionRecord{}, ProducerIDsRecord{}, ReportRecord{}, ScramRecord{}, TopicRecord{},
}

// field is one field of a record's JSON, with all above it: mirror.state.
type field struct {
	path  string
	level int // that its tag names, or that of what it is in; 1 without
	// forced: it has a tag and is written where it is empty too.
	forced bool
}

// fieldsOf lists a type's fields as they are in JSON, those of structs within it too.
func fieldsOf(t reflect.Type, above string, level int) (all []field) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	zero := reflect.New(t).Interface()
	_, ownJSON := zero.(json.Unmarshaler)
	_, ownText := zero.(encoding.TextUnmarshaler)
	if t.Kind() != reflect.Struct || ownJSON || ownText {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		own := field{path: above + "." + name, level: level}
		if tag, ok := f.Tag.Lookup("level"); ok {
			n, err := strconv.Atoi(tag)
			if err != nil {
				panic(own.path + ": level " + tag)
			}
			own.level, own.forced = max(level, n), !strings.Contains(rest, "omit")
		}
		all = append(append(all, own), fieldsOf(f.Type, own.path, own.level)...)
	}
	return all
}

// TestFieldsHaveLevels: programs refuse records with fields that they don't know. A
// field that isn't in the list, which is of the programs before there were levels, names
// the level of the first program that knows it, and can be left out below.
func TestFieldsHaveLevels(t *testing.T) {
	text, err := os.ReadFile("testdata/fields-level-1.txt")
	if err != nil {
		t.Fatal(err)
	}
	first := strings.Fields(string(text))
	highest := int(SupportedFeatures()[FeatureMetadata].Max)
	var untagged []string
	for _, r := range recordTypes {
		typ := reflect.TypeOf(r)
		all := fieldsOf(typ, typ.Name(), 1)
		whole := all[0] // the version: its level is that of the whole record
		for _, f := range all {
			switch {
			case max(f.level, whole.level) > highest:
				t.Errorf("%s is of level %d, and this program supports up to %d", f.path, f.level, highest)
			case f.forced && f != whole:
				t.Errorf("%s is of level %d and is always written: let it be omitted where it is empty", f.path, f.level)
			case f.level == 1 && whole.level == 1:
				untagged = append(untagged, f.path)
			}
		}
	}
	for _, path := range untagged {
		if !slices.Contains(first, path) {
			t.Errorf("%s is new, and programs that support a level up to %d refuse records with it: give it the tag level:\"%d\" and write it from that level on alone (Image.FeatureLevel)",
				path, highest, highest+1)
		}
	}
	for _, path := range first {
		if !slices.Contains(untagged, path) {
			t.Errorf("%s is gone: older programs wrote it, and it must still be read", path)
		}
	}
}
