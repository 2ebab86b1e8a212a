"""The rules of kubelets: checks of settings, their file, and their comparison with a Node. It does
no I/O. sizing, the rules of plan, run, cli and converters may import it; it imports only model."""
