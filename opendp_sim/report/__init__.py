"""One page about a spec, plan, certificate, ledger or audit, for somebody who has to decide about it."""
