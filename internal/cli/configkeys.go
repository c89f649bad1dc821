package cli

import (
	"slices"
	"strings"

	"tidemark/internal/config"
)

// configCmd is `tidemark config …`.
type configCmd struct {
	Keys configKeysCmd `cmd:"" help:"List the keys of server.properties, of --set, and of topics, with their defaults and what they do."`
}

// configKeysCmd asks no node: it shows this program's own tables.
type configKeysCmd struct {
	Word   []string `arg:"" optional:"" help:"Only keys whose name or description has all of these words."`
	Topic  bool     `help:"Only configs of topics (topic create -c, topic alter -c)."`
	Output string   `short:"o" help:"How to print: table, wide (with the descriptions), json or yaml." enum:"table,wide,json,yaml" default:"table"`
}

func (c *configKeysCmd) Run(s Streams) error {
	keys := slices.DeleteFunc(config.Reference(), func(k config.Documented) bool {
		text := strings.ToLower(k.Name + " " + k.Doc)
		return c.Topic && !k.Topic || slices.ContainsFunc(c.Word, func(word string) bool { return !strings.Contains(text, strings.ToLower(word)) })
	})
	return Target{Output: c.Output}.print(s.Out, keys, func() table {
		out := table{columns: []string{"KEY", "OF", "DEFAULT", "ALLOWED", "WHAT-IT-DOES"}, wideFrom: 4}
		for _, k := range keys {
			of := "node"
			if k.Topic {
				of = "topic"
			}
			out.rows = append(out.rows, []string{k.Name, of, orDash(k.Default), k.Allowed, k.Doc})
		}
		return out
	})
}
