package keys

import "encoding/json"

// Kubeconfig returns a kubeconfig, which is YAML and therefore may be JSON,
// for the API server at a URL with a certificate of the authority.
func Kubeconfig(url string, authority *Authority, client Pair) ([]byte, error) {
	const name = "ackrail"
	type object = map[string]any
	return json.MarshalIndent(object{
		"apiVersion":      "v1",
		"kind":            "Config",
		"current-context": name,
		"clusters": []object{{"name": name, "cluster": object{
			"server":                     url,
			"certificate-authority-data": authority.PEM,
		}}},
		"users": []object{{"name": name, "user": object{
			"client-certificate-data": client.Certificate,
			"client-key-data":         client.Key,
		}}},
		"contexts": []object{{"name": name, "context": object{"cluster": name, "user": name}}},
	}, "", "  ")
}
