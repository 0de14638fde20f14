package v1alpha1

// DefaultPath is the URL path of an endpoint whose spec names none. It cannot
// stand in the schema, where a default may not depend on the object's name.
func DefaultPath(namespace, name string) string {
	return "/hooks/" + namespace + "/" + name
}
