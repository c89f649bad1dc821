package log

func (p *opening) finishSwaps(names []string) ([]string, error) { return names, nil }
