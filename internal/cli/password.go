package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// passwordFlags say where a password comes from. On a terminal it is asked for, twice.
type passwordFlags struct {
	PasswordFile string `help:"File whose first line is the password; - is standard input." placeholder:"FILE" xor:"password"`
	PasswordEnv  string `help:"Environment variable that holds the password." placeholder:"NAME" xor:"password"`
	Password     string `help:"The password itself. Everybody on this machine can read it here, and the shell remembers it." placeholder:"TEXT" xor:"password"`
}

// passwordBytesMax bounds what is read as one: more is another file than was meant.
const passwordBytesMax = 4096

// password reads the password of a user that is to be written.
func (f *passwordFlags) password(s Streams, user string) (string, error) {
	var text string
	var err error
	switch {
	case f.PasswordFile != "":
		text, err = passwordFrom(s, f.PasswordFile)
	case f.PasswordEnv != "":
		var set bool
		if text, set = os.LookupEnv(f.PasswordEnv); !set {
			err = fmt.Errorf("the environment has no %s", f.PasswordEnv)
		}
	case f.Password != "":
		text = f.Password
		fmt.Fprintln(s.Err, "warning: a password on the command line can be read by everybody on this machine, and stays in the shell's history: take --password-file or --password-env")
	default:
		text, err = askPassword(s, user)
	}
	switch {
	case err != nil:
		return "", err
	case text == "":
		return "", fmt.Errorf("%w: the password is empty", errUsage)
	case len(text) > passwordBytesMax:
		return "", fmt.Errorf("%w: a password of more than %d bytes is not taken at a log-in", errUsage, passwordBytesMax)
	}
	return text, nil
}

// passwordFrom reads the first line of a file.
func passwordFrom(s Streams, name string) (string, error) {
	from := s.In
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return "", fmt.Errorf("--password-file: %w", err)
		}
		defer file.Close()
		from = file
	}
	line, err := bufio.NewReader(io.LimitReader(from, passwordBytesMax+2)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("--password-file %s: %w", name, err)
	}
	return strings.TrimRight(line, "\r\n"), nil
}

// askPassword asks on a terminal, without showing what is typed.
func askPassword(s Streams, user string) (string, error) {
	in, isFile := s.In.(*os.File)
	if !s.InTerminal || !isFile {
		return "", fmt.Errorf("%w: standard input is no terminal to ask for the password at: add --password-file (- is standard input) or --password-env", errUsage)
	}
	ask := func(prompt string) (string, error) {
		fmt.Fprintf(s.Err, prompt, user)
		text, err := term.ReadPassword(int(in.Fd()))
		fmt.Fprintln(s.Err)
		return string(text), err
	}
	first, err := ask("Password of %s: ")
	if err != nil {
		return "", fmt.Errorf("no password: %w", err)
	}
	again, err := ask("Password of %s again: ")
	if err != nil {
		return "", fmt.Errorf("no password: %w", err)
	}
	if first != again {
		return "", errors.New("the two passwords differ: nothing was changed")
	}
	return first, nil
}
