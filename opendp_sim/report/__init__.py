"""One page about a spec, a plan, a certificate or a ledger, for somebody who has to decide about it."""
