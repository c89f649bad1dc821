package broker

// startChores starts what happens by the clock.
func (b *Broker) startChores() {}
