package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// readThrough are fields that others read through a method of this package.
var readThrough = map[string]string{"Authorizer": "Authorizes", "AuthorizerClass": "Authorizes"}

// fieldName finds the name of the field of the struct that ptr points into.
func fieldName(t *testing.T, of reflect.Value, ptr any) string {
	t.Helper()
	for i := range of.NumField() {
		f := of.Field(i)
		if f.CanAddr() && f.Addr().Pointer() == reflect.ValueOf(ptr).Pointer() && f.Type() == reflect.TypeOf(ptr).Elem() {
			return of.Type().Field(i).Name
		}
		if f.Kind() == reflect.Struct {
			if name := fieldName(t, f, ptr); name != "" {
				return name
			}
		}
	}
	return ""
}

// sourceOutside is the program's text but for this package and tests.
func sourceOutside(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || filepath.Dir(path) == filepath.Join("..", "config") {
			return err
		}
		text, err := os.ReadFile(path)
		b.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Every key fills a field that something outside this package reads; a setting
// without effect is a row of ignoredReasons instead, so that whoever sets it is told.
func TestEverySettingIsRead(t *testing.T) {
	code := sourceOutside(t)
	isRead := func(field string) bool {
		return regexp.MustCompile(`\.` + regexp.QuoteMeta(field) + `\b`).MatchString(code)
	}
	if isRead("NoSuchField") || !isRead("NodeID") {
		t.Fatal("the search is broken")
	}
	ofTopics := map[string]bool{} // keys that are read as the default of a topic config
	for _, k := range topicKeys() {
		ofTopics[k.broker] = true
	}
	b := &Broker{}
	for _, k := range tables() {
		if k.bind == nil || ofTopics[k.name] {
			continue
		}
		field := fieldName(t, reflect.ValueOf(b).Elem(), k.bind(b))
		if field == "" {
			t.Errorf("%s fills no field", k.name)
		} else if method := readThrough[field]; !isRead(field) && (method == "" || !isRead(method)) {
			t.Errorf("%s: nothing reads %s: use it, or say in ignoredReasons why it has no effect", k.name, field)
		}
	}
	topic := reflect.TypeOf(Topic{})
	for i := range topic.NumField() {
		if name := topic.Field(i).Name; !isRead(name) {
			t.Errorf("nothing reads the topic config %s", name)
		}
	}
}
