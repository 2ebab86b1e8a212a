"""The commands of the panel Act: run, pause, resume, reset, forget and takeover.
cli and by_hand may import it; it imports all but by_hand, set_up, http, lab, simulate and
converters.
"""
