// Package manifest reads WebhookEndpoint, EventReplay and Secret objects from
// YAML files, judging and completing them as an API server would: unknown and
// duplicate fields are refused, defaults are filled in, and every rule of the
// schema holds. The schemas are those of the CustomResourceDefinitions that
// are installed into clusters.
//
// It must not know what is done with the objects: no pipeline, no database.
package manifest
