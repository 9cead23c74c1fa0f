//go:build tools

// Keeps the main packages that ./recipe compiles in go.mod; never compiled itself.
package toolbox

import _ "helm.sh/helm/v3/cmd/helm"
