package source

import "tidemark/internal/config"

// LoadProperties reads a Java properties file (the format of Kafka's
// --command-config files). A key that appears twice keeps the last value, as in Java.
func LoadProperties(path string) (map[string]string, error) {
	props, err := config.ReadProperties(path)
	if err != nil {
		return nil, &Error{Kind: ErrConfig, Sentence: "can't read the client properties file", Cause: err}
	}
	return byKey(props), nil
}

// byKey keeps the last value of each key.
func byKey(props []config.Property) map[string]string {
	m := make(map[string]string, len(props))
	for _, p := range props {
		m[p.Key] = p.Value
	}
	return m
}
