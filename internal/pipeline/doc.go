// Package pipeline is the configuration contract between whoever renders a
// pipeline (the controllers, or the dev command) and the ingress and worker
// processes that run it: one versioned JSON document with any number of
// endpoints and destinations. Secrets are named by file, never contained.
//
// It knows nothing of Kubernetes and opens no files but the document itself.
package pipeline
