package apiserver

import (
	"context"
	"fmt"
	"os"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// Grant gives a user the rights of the ClusterRole in a file, and no others,
// and returns the access of that user.
func (s *Server) Grant(ctx context.Context, file, user string) (*rest.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(text, role); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	scheme := runtime.NewScheme()
	if err := rbacv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	admin, err := client.New(s.Config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}
	for _, object := range []client.Object{role, binding} {
		if err := admin.Create(ctx, object); err != nil {
			return nil, fmt.Errorf("granting the rights of %s: %w", file, err)
		}
	}
	access := rest.CopyConfig(s.Config)
	access.Impersonate = rest.ImpersonationConfig{UserName: user}
	return access, nil
}
