package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"

	"github.com/alecthomas/kong"
)

// existingFile takes a flag or an argument of the type existingfile, as kong's own does,
// and says in words what is in its place.
func existingFile(ctx *kong.DecodeContext, target reflect.Value) error {
	var path string
	if err := ctx.Scan.PopValueInto("file", &path); err != nil {
		return err
	}
	path = kong.ExpandPath(path)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no file %s: check the path", path)
	case err != nil:
		return fmt.Errorf("the file can't be looked at, check its owner and permissions: %w", err)
	case info.IsDir():
		return fmt.Errorf("%s is a folder: name the file in it", path)
	}
	target.SetString(path)
	return nil
}
