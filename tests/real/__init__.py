"""dnm on servers that it did not write: kube-apiserver, YuniKorn, kwok's kubelets, real Slurm."""
