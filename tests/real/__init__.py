"""dnm on servers of other projects: kube-apiserver, YuniKorn, kwok's kubelets, real Slurm."""
