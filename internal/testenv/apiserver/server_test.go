package apiserver_test

import (
	"testing"

	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/testenv/apiserver"
)

func TestServer(t *testing.T) {
	server, err := apiserver.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := v1alpha1.AddToScheme(scheme.Scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server.Config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	first, err := apiserver.Namespace(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	second, err := apiserver.Namespace(t.Context(), c)
	if err != nil || first == second {
		t.Fatalf("got %s after %s, %v", second, first, err)
	}
	// The definitions are served.
	for _, list := range []client.ObjectList{&v1alpha1.WebhookEndpointList{}, &v1alpha1.EventReplayList{}} {
		if err := c.List(t.Context(), list, client.InNamespace(first)); err != nil {
			t.Error(err)
		}
	}
}

func TestNoPrograms(t *testing.T) {
	t.Setenv(apiserver.AssetsEnv, t.TempDir())
	if server, err := apiserver.Start(); err == nil {
		_ = server.Stop()
		t.Error("a server was started from nothing")
	}
}
