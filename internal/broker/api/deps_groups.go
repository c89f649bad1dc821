package api

// Groups is the group coordinator.
type Groups interface{}
