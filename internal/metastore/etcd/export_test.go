package etcd

// AtLeast is atLeast, for its table of cases.
var AtLeast = atLeast
