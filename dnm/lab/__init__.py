"""An optional package: an embedded cluster (sandbox) in memory, and a demo on it. No run of dnm
needs it, and production hosts need not install it. cli offers its commands if it is installed."""
