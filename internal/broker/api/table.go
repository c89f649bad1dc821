package api

// coreAPIs is the table of all APIs but the group APIs (table_groups.go).
func coreAPIs() []entry {
	return []entry{}
}
