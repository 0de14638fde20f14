package webhookendpoint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ackrail/ackrail/api/v1alpha1"
	"github.com/ackrail/ackrail/internal/conditions"
	"github.com/ackrail/ackrail/internal/testenv/apiserver"
)

func TestMain(m *testing.M) { apiserver.Main(m) }

func TestController(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "WebhookEndpoint controller")
}

// managerUser is who the managers under test are: somebody with the rights of
// config/rbac, which are generated from this package's markers.
const managerUser = "system:serviceaccount:ackrail-system:manager"

var (
	server *apiserver.Server
	scheme = runtime.NewScheme()
	// admin is a user who may do everything, and reads no cache.
	admin client.Client
	// managerAccess is how the managers under test reach the server.
	managerAccess *rest.Config
)

// contract is what holds for every endpoint's conditions, whatever happens.
var contract = conditions.Contract{
	Always: []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionSecretsResolved, v1alpha1.ConditionStoreReady,
		v1alpha1.ConditionIngressAvailable, v1alpha1.ConditionWorkerAvailable,
	},
	WhileTrue: []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled},
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewJSONHandler(GinkgoWriter, nil)))
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	var err error
	contract.Reasons, err = reasons("../../api/v1alpha1/conditions.go")
	Expect(err).NotTo(HaveOccurred())
	server, err = apiserver.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(server.Stop()).To(Succeed()) })
	admin, err = client.New(server.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	managerAccess, err = server.Grant(ctx, "../../config/rbac/role.yaml", managerUser)
	Expect(err).NotTo(HaveOccurred())
})

// reasons returns the values of the constants that a file names Reason….
func reasons(file string) ([]string, error) {
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		return nil, err
	}
	var all []string
	ast.Inspect(tree, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		if value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value); err == nil {
			all = append(all, value)
		}
		return true
	})
	return all, nil
}
