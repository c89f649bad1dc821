// Package switchboard harms the disk and the clock of a running test build.
//
// A test makes a folder with Create and starts a node that was built with the
// tag `faults`, whose environment names the folder. Both map one small file of
// it into memory: what the test sets is in force at the node's next operation,
// also across the node's restarts, and the node counts there what it was hit by.
//
// Beside it lies a ledger: how far each file was synced. PowerLoss reads it once
// the process is gone and takes away from its files what was not, as the end of
// a machine does; a killed process alone loses nothing, since the kernel keeps
// what was written. Names of files and folders are taken as durable; losing
// them is the crash model's of package vfs, and the simulator's.
//
// No production binary holds this package: a test looks.
package switchboard
