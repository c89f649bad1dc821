package mirror

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
)

// reasons are the constants of type Reason, from the source.
func reasons(t *testing.T) []Reason {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "effects.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []Reason
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Reason" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, Reason(text))
		}
		return true
	})
	if len(out) < 20 {
		t.Fatalf("only %d reasons found", len(out))
	}
	return out
}

// TestEveryLastingReasonHasAWayOut: what is written as FAILED stays until somebody does something.
func TestEveryLastingReasonHasAWayOut(t *testing.T) {
	for _, r := range reasons(t) {
		if r.isLasting() && r.WayOut() == "" {
			t.Errorf("%s stays, and nobody is told what to do", r)
		}
	}
}
