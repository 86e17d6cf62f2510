"""Write one page for the person who decides.

About a spec, plan, certificate, ledger or audit.
"""
