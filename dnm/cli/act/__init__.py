"""The commands of the panel Act: pause, resume, reset, forget and takeover.
cli may import it; it imports all but http, lab, simulate and converters.
"""
