package protocol

// Block is how many tokens a grant reserves: one for each goroutine that the lock
// may be handed to in memory. What was not used is given back with the release.
// Scripts have it as BLOCK.
const Block = 1000

// All is how many permits one takes that excludes all others: ALL in permit.lua. No limit is as high.
const All = 1_000_000_000
