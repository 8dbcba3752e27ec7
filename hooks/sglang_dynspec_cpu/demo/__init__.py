"""
`dynspec demo`: a real server on the CPU that measures, and switches as its load changes.
"""
