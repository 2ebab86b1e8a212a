"""The commands of the panel Manual changes, by which an administrator changes the registry. cli may
import it; it imports all but set_up, http, lab, simulate and converters."""
