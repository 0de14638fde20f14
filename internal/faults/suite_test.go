package faults

import (
	"flag"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
	"go.uber.org/goleak"

	"github.com/ackrail/ackrail/internal/cli"
	"github.com/ackrail/ackrail/internal/rig"
)

var (
	resultsFile = flag.String("results", "", "file that the rows' results are added to, and that all in it are read from for -document")
	document    = flag.String("document", "", "file to write the report to")
)

func TestMain(m *testing.M) {
	rig.Main(m, cli.Main,
		goleak.IgnoreTopFunction("github.com/onsi/ginkgo/v2/internal/interrupt_handler.(*InterruptHandler).registerForInterrupts.func2"))
}

func TestFaults(t *testing.T) {
	RegisterFailHandler(Fail)
	suite, reporter := GinkgoConfiguration()
	if suite.LabelFilter == "" && len(suite.FocusStrings) == 0 {
		suite.LabelFilter = "short"
	}
	RunSpecs(t, "Faults", suite, reporter)
}

// patience bounds what takes a moment on a quiet machine.
const patience = time.Minute

// short marks a row of the set that every run of the tests has.
var short = Label("short")

// row adds a row of the report: its name, what is done in it as a sentence
// without a full stop, and the doing. The checker has the last word in each.
func row(name, did string, run func(*world), decorators ...any) {
	body := func(ctx SpecContext) {
		w := &world{t: GinkgoTB(), ctx: ctx}
		w.result = &result{Row: name, Did: did}
		defer func() {
			w.result.Failed = !w.judged
			results = append(results, w.result)
		}()
		run(w)
		w.settle()
	}
	names = append(names, name)
	It(name, append([]any{Label("fault"), NodeTimeout(3 * time.Minute)}, append(decorators, body)...)...)
}

// A line for each row, for who waits.
var _ = ReportAfterEach(func(r SpecReport) {
	if *resultsFile != "" && !r.State.Is(types.SpecStateSkipped) {
		fmt.Printf("\nrow %-8s %5.1f s  %s\n", r.State, r.RunTime.Seconds(), r.LeafNodeText)
	}
})

var _ = AfterSuite(func() {
	if *resultsFile != "" {
		Expect(save(*resultsFile, results)).To(Succeed())
	}
	if *document != "" {
		all, err := read(*resultsFile)
		Expect(err).NotTo(HaveOccurred())
		Expect(writeDocument(*document, all)).To(Succeed())
	}
})
