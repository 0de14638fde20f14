package apiserver

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/ackrail/ackrail/internal/testenv"
)

// Main is testenv.Main for packages whose tests run controllers, or Ginkgo: it
// does not count the goroutines that these leave behind.
func Main(m *testing.M) {
	testenv.Main(m,
		// Ginkgo listens for interrupts until the process ends.
		goleak.IgnoreTopFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2"),
		// The cache of some namespaces waits for its first objects without an
		// end, also where the manager was stopped before they came.
		goleak.IgnoreTopFunction("sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformerHandlerRegistration.func1"),
	)
}
