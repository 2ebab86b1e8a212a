"""The rules of kubelets: settings of a node type, judged, translated and held against a Node. Pure.
sizing, the rules of plan, run, cli and converters may import it; it imports only model.
"""
