package ssa_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/ackrail/ackrail/internal/ssa"
	"github.com/ackrail/ackrail/internal/testenv/apiserver"
)

var server *apiserver.Server

func TestMain(m *testing.M) {
	var err error
	if server, err = apiserver.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// rig applies for an owner of its own, in a namespace of its own.
type rig struct {
	*ssa.Applier
	t         *testing.T
	client    client.WithWatch
	namespace string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	c, err := client.NewWithWatch(server.Config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := apiserver.Namespace(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	owner := metav1.OwnerReference{Kind: "WebhookEndpoint", Name: "github", UID: types.UID("11111111-0000-4000-8000-000000000000")}
	return &rig{&ssa.Applier{Client: c, APIReader: c, Owner: owner}, t, c, namespace}
}

func owned(r *rig) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().WithAPIVersion("ackrail.io/v1alpha1").WithKind(r.Owner.Kind).WithName(r.Owner.Name).
		WithUID(r.Owner.UID).WithController(true)
}

// want is a pod with what is easily mistaken for a difference: quantities
// that are written in another way, lists with keys, defaults.
func (r *rig) want() *corev1ac.PodApplyConfiguration {
	return corev1ac.Pod("child", r.namespace).
		WithLabels(map[string]string{"ours": "yes"}).
		WithOwnerReferences(owned(r)).
		WithSpec(corev1ac.PodSpec().
			WithContainers(corev1ac.Container().WithName("main").WithImage("image:v1").
				WithEnv(corev1ac.EnvVar().WithName("A").WithValue("b")).
				WithResources(corev1ac.ResourceRequirements().WithLimits(corev1.ResourceList{
					corev1.ResourceMemory: resource.MustParse("1024Mi"), corev1.ResourceCPU: resource.MustParse("0.5"),
				}))))
}

func (r *rig) apply(want *corev1ac.PodApplyConfiguration) (ssa.Result, *corev1.Pod, error) {
	live := &corev1.Pod{}
	result, err := ssa.Apply(r.t.Context(), r.Applier, live, want, corev1ac.ExtractPod)
	return result, live, err
}

func (r *rig) mustApply(want *corev1ac.PodApplyConfiguration, result ssa.Result) *corev1.Pod {
	r.t.Helper()
	got, live, err := r.apply(want)
	if err != nil || got != result {
		r.t.Fatalf("got %q, %v, want %q", got, err, result)
	}
	stored := &corev1.Pod{}
	if err := r.client.Get(r.t.Context(), client.ObjectKey{Namespace: r.namespace, Name: "child"}, stored); err != nil {
		r.t.Fatal(err)
	}
	if live.ResourceVersion != stored.ResourceVersion || live.UID != stored.UID {
		r.t.Errorf("the object is not the stored one: %s, want %s", live.ResourceVersion, stored.ResourceVersion)
	}
	return stored
}

func (r *rig) edit(change func(*corev1.Pod)) {
	r.t.Helper()
	pod := &corev1.Pod{}
	if err := r.client.Get(r.t.Context(), client.ObjectKey{Namespace: r.namespace, Name: "child"}, pod); err != nil {
		r.t.Fatal(err)
	}
	change(pod)
	if err := r.client.Update(r.t.Context(), pod, client.FieldOwner("somebody")); err != nil {
		r.t.Fatal(err)
	}
}

func TestApply(t *testing.T) {
	r := newRig(t)
	r.mustApply(r.want(), ssa.Created)
	r.mustApply(r.want(), ssa.Unchanged)

	// What others add is theirs.
	r.edit(func(p *corev1.Pod) {
		p.Labels["theirs"] = "yes"
		p.Annotations = map[string]string{"theirs": "yes"}
	})
	r.mustApply(r.want(), ssa.Unchanged)

	// What others change is taken back.
	r.edit(func(p *corev1.Pod) {
		p.Labels["ours"] = "no"
		p.Spec.Containers[0].Image = "other:v9"
	})
	pod := r.mustApply(r.want(), ssa.Updated)
	if pod.Labels["ours"] != "yes" || pod.Spec.Containers[0].Image != "image:v1" || pod.Labels["theirs"] != "yes" || pod.Annotations["theirs"] != "yes" {
		t.Errorf("got labels %v, annotations %v, image %s", pod.Labels, pod.Annotations, pod.Spec.Containers[0].Image)
	}
	r.mustApply(r.want(), ssa.Unchanged)

	// So is what others have removed, and the record of what was applied.
	r.edit(func(p *corev1.Pod) { delete(p.Labels, "ours") })
	r.mustApply(r.want(), ssa.Updated)
	r.edit(func(p *corev1.Pod) { p.ManagedFields = []metav1.ManagedFieldsEntry{{}} })
	r.mustApply(r.want(), ssa.Updated)
	r.mustApply(r.want(), ssa.Unchanged)

	// An orphan is taken in again.
	r.edit(func(p *corev1.Pod) { p.OwnerReferences = nil })
	if pod := r.mustApply(r.want(), ssa.Updated); len(pod.OwnerReferences) != 1 {
		t.Errorf("got owners %v", pod.OwnerReferences)
	}

	// What is no longer wanted goes.
	want := r.want().WithAnnotations(map[string]string{"ours": "yes"})
	r.mustApply(want, ssa.Updated)
	pod = r.mustApply(r.want(), ssa.Updated)
	if _, ok := pod.Annotations["ours"]; ok {
		t.Error("the annotation is still there")
	}
}

// An object that the cache does not hold, such as one that lost its label, is
// looked up before it is written.
func TestApplyBeyondTheCache(t *testing.T) {
	r := newRig(t)
	r.mustApply(r.want(), ssa.Created)
	r.Client = interceptor.NewClient(r.client, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
		},
	})
	r.mustApply(r.want(), ssa.Unchanged)
}

func TestConflict(t *testing.T) {
	yes := true
	reference := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "ackrail.io/v1alpha1", Kind: kind, Name: name, UID: "22222222-0000-4000-8000-000000000000", Controller: &yes}}
	}
	for _, tc := range []struct {
		name     string
		owners   []metav1.OwnerReference
		leftover bool
		want     string
	}{
		{"nobody's", nil, false, "Pod child exists and was not made for this object: delete or rename it"},
		{"somebody else's", reference("WebhookEndpoint", "other"), false, "Pod child belongs to WebhookEndpoint other: delete or rename it"},
		{"another kind's", reference("ReplicaSet", "github"), false, "Pod child belongs to ReplicaSet github: delete or rename it"},
		{"an earlier one's", reference("WebhookEndpoint", "github"), true, "Pod child still belongs to an earlier WebhookEndpoint github, and is about to be deleted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "child", OwnerReferences: tc.owners},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "theirs:v1"}}},
			}
			if err := r.client.Create(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			_, _, err := r.apply(r.want())
			var conflict *ssa.ConflictError
			if !errors.As(err, &conflict) || conflict.Leftover != tc.leftover || err.Error() != tc.want {
				t.Errorf("got %v (%+v), want %s", err, conflict, tc.want)
			}
			version := pod.ResourceVersion
			if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || pod.ResourceVersion != version {
				t.Errorf("the object was written: %s after %s, %v", pod.ResourceVersion, version, err)
			}
		})
	}
}

func TestApplyRefused(t *testing.T) {
	r := newRig(t)
	want := r.want()
	want.Spec.Containers[0].WithImage("")
	if result, _, err := r.apply(want); err == nil {
		t.Errorf("got %s for a pod without an image", result)
	}
}
