package internal_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	fileLinesMax     = 800
	functionLinesMax = 70
)

// unfinished matches words that mark work as not done.
var unfinished = regexp.MustCompile(`\b(FI` + `XME|XX` + `X|TO` + `DO)\b`)

// badNames are words that say nothing about what a package or function does.
var badNames = regexp.MustCompile(`^(maybe|Maybe)[A-Z]`)

var badPackages = map[string]bool{"util": true, "utils": true, "common": true, "helpers": true, "manager": true, "impl": true}

// tidyFaults lists what is untidy in one Go file.
func tidyFaults(path string, src []byte) []string {
	var faults []string
	if n := bytes.Count(src, []byte("\n")); n > fileLinesMax {
		faults = append(faults, "file has "+itoa(n)+" lines, more than "+itoa(fileLinesMax))
	}
	if word := unfinished.Find(src); word != nil {
		faults = append(faults, "marks unfinished work: "+string(word))
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, src, parser.ParseComments)
	if err != nil {
		return append(faults, err.Error())
	}
	if badPackages[file.Name.Name] {
		faults = append(faults, "package name says nothing: "+file.Name.Name)
	}
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		lines := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
		if lines > functionLinesMax && !markedLong(fset, file, fn) && !strings.HasSuffix(path, "_test.go") {
			faults = append(faults, fn.Name.Name+" has "+itoa(lines)+" lines; split it or say why above it: //tidy:long reason")
		}
		if badNames.MatchString(fn.Name.Name) {
			faults = append(faults, fn.Name.Name+": say the condition instead of 'maybe'")
		}
	}
	return faults
}

// markedLong reports whether a comment with a reason right above fn allows its length.
func markedLong(fset *token.FileSet, file *ast.File, fn *ast.FuncDecl) bool {
	begin := fset.Position(fn.Pos()).Line
	for _, group := range file.Comments {
		for _, c := range group.List {
			line := fset.Position(c.Pos()).Line
			reason, ok := strings.CutPrefix(c.Text, "//tidy:long ")
			if ok && line < begin && line >= begin-15 && len(strings.TrimSpace(reason)) > 10 {
				return true
			}
		}
	}
	return false
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

// TestTidy keeps files and functions short and names telling.
func TestTidy(t *testing.T) {
	seen := 0
	for _, root := range []string{"../cmd", "../internal", "../test"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
				return err
			}
			src, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			seen++
			for _, fault := range tidyFaults(path, src) {
				t.Errorf("%s: %s", path, fault)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 20 {
		t.Fatalf("only %d files seen: the walk is broken", seen)
	}
}

// invariantNumber matches an invariant's number, such as I-07.
var invariantNumber = regexp.MustCompile(`\bI-[0-9]{2,3}\b`)

// TestInvariantsAreListed compares the numbers that the code asserts with docs/INVARIANTS.md, both ways.
func TestInvariantsAreListed(t *testing.T) {
	doc, err := os.ReadFile("../docs/INVARIANTS.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, n := range invariantNumber.FindAllString(string(doc), -1) {
		listed[n] = true
	}
	used := map[string]string{}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasPrefix(path, "assert/") || filepath.Dir(path) == "." {
			return err
		}
		src, err := os.ReadFile(path)
		for _, n := range invariantNumber.FindAllString(string(src), -1) {
			if n != "I-00" { // the number that tests of assertions use
				used[n] = path
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for n, path := range used {
		if !listed[n] {
			t.Errorf("%s is used in %s and missing in docs/INVARIANTS.md", n, path)
		}
	}
	for n := range listed {
		if used[n] == "" {
			t.Errorf("%s is listed in docs/INVARIANTS.md and used nowhere", n)
		}
	}
}

// TestTidyFindsFaults shows that the check can fail.
func TestTidyFindsFaults(t *testing.T) {
	f := func(src string, want int) {
		t.Helper()
		if got := tidyFaults("x.go", []byte(src)); len(got) != want {
			t.Errorf("%d faults %q, want %d", len(got), got, want)
		}
	}
	long := "func f() {\n" + strings.Repeat("\tprintln()\n", functionLinesMax) + "}\n"
	f("package x\n", 0)
	f("package util\n", 1)
	f("package x\n\n"+long, 1)
	f("package x\n\n//tidy:long the table reads best in one piece\n"+long, 0)
	f("package x\n// TO"+"DO later\n", 1)
	f("package x\nfunc maybeCut() {}\n", 1)
	f("package x\n"+strings.Repeat("\n", fileLinesMax+1), 1)
}
