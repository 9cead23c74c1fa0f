//go:build tools

// Keeps the main packages that ./recipe compiles in go.mod; never compiled itself.
package toolbox

import _ "github.com/cert-manager/cert-manager/cmd/controller"
