"""The rules of kubelets: settings of a node type, judged, translated and held against a Node.

Pure: texts and values in, values out. It imports nothing of dnm but `model`; see
docs/architecture.md.
"""
