package cli

import (
	"bufio"
	"fmt"
	"strings"
)

// confirm asks the operator to type want before something that can't be taken
// back. Off a terminal there is nobody to ask: --yes is needed.
func confirm(s Streams, yes bool, warning, want string) error {
	if err := askable(s, yes); err != nil || yes {
		return err
	}
	fmt.Fprintf(s.Err, "%s\nType %q to go on: ", warning, want)
	line, err := bufio.NewReader(s.In).ReadString('\n')
	if strings.TrimSpace(line) != want {
		if err != nil {
			return fmt.Errorf("no confirmation: %w", err)
		}
		return fmt.Errorf("not confirmed: nothing was changed")
	}
	return nil
}

// askable refuses what has to be confirmed where there is nobody to ask.
func askable(s Streams, yes bool) error {
	if !yes && !s.InTerminal {
		return fmt.Errorf("%w: this asks for confirmation and standard input is no terminal: add --yes", errUsage)
	}
	return nil
}
