// The Prometheus operator as it was published: tests apply its CRDs, and build nothing.
module trustplane.dev/monitoring-crds

go 1.24.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
