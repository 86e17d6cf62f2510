"""Write one page for the person who decides."""
