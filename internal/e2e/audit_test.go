//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// auditStart is when this run began.
var auditStart time.Time

// call is what the API server's audit log tells of a request, see
// audit.k8s.io/v1 Event.
type call struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
}

// resource is group/resource/subresource, as far as there are any.
func (c *call) resource() string {
	name := c.ObjectRef.Resource
	if c.ObjectRef.Subresource != "" {
		name += "/" + c.ObjectRef.Subresource
	}
	if c.ObjectRef.APIGroup != "" {
		name = c.ObjectRef.APIGroup + "/" + name
	}
	return name
}

func (c *call) String() string {
	return fmt.Sprintf("%s %s %s %s/%s: %d", c.RequestReceivedTimestamp.Format(time.StampMilli), c.Verb, c.resource(),
		c.ObjectRef.Namespace, c.ObjectRef.Name, c.ResponseStatus.Code)
}

// calls returns what an account has asked of the API server since a time.
func calls(since time.Time, account string) ([]call, error) {
	log, err := os.ReadFile(env.auditLog)
	if err != nil {
		return nil, err
	}
	var found []call
	for line := range bytes.Lines(log) {
		if !bytes.Contains(line, []byte(account)) || !bytes.HasSuffix(line, []byte("\n")) {
			continue
		}
		var c call
		if err := json.Unmarshal(line, &c); err != nil {
			return nil, fmt.Errorf("%s: %w", env.auditLog, err)
		}
		if c.User.Username == account && !c.RequestReceivedTimestamp.Before(since) {
			found = append(found, c)
		}
	}
	return found, nil
}

// writes returns the writes of an account since a time, but for its lease.
func writes(since time.Time, account string) []string {
	GinkgoHelper()
	all, err := calls(since, account)
	Expect(err).NotTo(HaveOccurred())
	var found []string
	for _, c := range all {
		reads := []string{"get", "list", "watch"}
		reviews := []string{"tokenreviews", "subjectaccessreviews", "leases"}
		if c.Stage == "ResponseComplete" && !slices.Contains(reads, c.Verb) && !slices.Contains(reviews, c.ObjectRef.Resource) {
			found = append(found, c.String())
		}
	}
	return found
}

// waitQuiet waits until an account has not written for a while.
func waitQuiet(ctx context.Context, account string) {
	GinkgoHelper()
	Eventually(ctx, func() string { return strings.Join(writes(time.Now().Add(-15*time.Second), account), "\n") }).
		WithTimeout(3 * time.Minute).WithPolling(time.Second).Should(BeEmpty())
}
