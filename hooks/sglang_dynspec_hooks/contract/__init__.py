"""
What this package relies on in SGLang, and how that is checked.

A `seam` states what is hooked and why; `check` compares every seam, and every function that is
called or overridden, with the installed SGLang's `source`; `version` knows which releases are
supported.
"""
