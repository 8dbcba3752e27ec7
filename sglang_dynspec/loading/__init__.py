"""
Finding what others wrote, policies and observers, and checking what they are given.
"""
