"""A script that reads what a run reads, but with the official client, for comparison in the
benchmark. KUBECONFIG names the server."""

from kubernetes import client, config

config.load_kube_config()
core = client.CoreV1Api()
nodes = core.list_node()
pods = core.list_pod_for_all_namespaces(
    field_selector="status.phase!=Succeeded,status.phase!=Failed"
)
queues = core.read_namespaced_config_map("yunikorn-configs", "yunikorn")
print(len(nodes.items), len(pods.items), queues.kind)
