package api

// groupAPIs is the table of the group APIs: one row per file of a group API key.
func groupAPIs() []entry {
	return []entry{}
}
