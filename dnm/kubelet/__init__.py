"""The rules of kubelets: checks of settings, their file, and their comparison with a Node. Pure.
sizing, the rules of plan, run, cli and converters may import it; it imports only model.
"""
