package auth

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"strings"
)

// CertificatePrincipal is the principal of a TLS client: its certificate's subject,
// written as Kafka does by default (RFC 2253, as Java's X500Principal.getName).
func CertificatePrincipal(c *x509.Certificate) string { return "User:" + subjectName(c.RawSubject) }

// attributeNames are the attributes that RFC 2253 names; others go by number.
var attributeNames = map[string]string{
	"2.5.4.3": "CN", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.10": "O", "2.5.4.11": "OU", "2.5.4.6": "C", "2.5.4.9": "STREET",
	"0.9.2342.19200300.100.1.25": "DC", "0.9.2342.19200300.100.1.1": "UID",
}

// attribute is one part of a relative name, with the value as it was encoded.
type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

// subjectName writes a distinguished name: the last part first, the parts of one
// set with a plus between.
func subjectName(der []byte) string {
	var sequence []asn1.RawValue
	if rest, err := asn1.Unmarshal(der, &sequence); err != nil || len(rest) > 0 {
		return hex.EncodeToString(der) // no name at all: none that anything is allowed to
	}
	var names []string
	for i := len(sequence) - 1; i >= 0; i-- {
		var parts []string
		for rest := sequence[i].Bytes; len(rest) > 0; {
			var a attribute
			var err error
			if rest, err = asn1.Unmarshal(rest, &a); err != nil {
				return hex.EncodeToString(der)
			}
			parts = append(parts, a.text())
		}
		names = append(names, strings.Join(parts, "+"))
	}
	return strings.Join(names, ",")
}

func (a attribute) text() string {
	name, known := attributeNames[a.Type.String()]
	value, isText := textOf(a.Value)
	if !known || !isText {
		if !known {
			name = a.Type.String()
		}
		return name + "=#" + hex.EncodeToString(a.Value.FullBytes)
	}
	return name + "=" + escaped(value)
}

// textOf reads the kinds of string that names are made of.
func textOf(v asn1.RawValue) (string, bool) {
	switch v.Tag {
	case asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagIA5String, asn1.TagT61String, asn1.TagBMPString, asn1.TagGeneralString:
		var s string
		if _, err := asn1.Unmarshal(v.FullBytes, &s); err == nil {
			return s, true
		}
	}
	return "", false
}

// escaped writes a value so that it can't be taken for the beginning of another
// part: RFC 2253 §2.4.
func escaped(s string) string {
	var b strings.Builder
	for i, r := range s {
		first, last := i == 0, i+len(string(r)) == len(s)
		switch {
		case strings.ContainsRune(",+\"\\<>;", r), r == ' ' && (first || last), r == '#' && first:
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, "\\%02X", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
