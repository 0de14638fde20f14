package resources

import (
	"cmp"
	"slices"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/ackrail/ackrail/api/v1alpha1"
)

// Where the pods find their files.
const (
	configDir    = "/etc/ackrail/config"
	configFile   = "pipeline.json"
	databaseDir  = "/etc/ackrail/database"
	databaseFile = "uri"
	keysDir      = "/etc/ackrail/secrets"

	volumeConfig   = "config"
	volumeDatabase = "database"
	volumeSecrets  = "secrets"

	// secretMode lets the pods' group read, and nobody write.
	secretMode = 0o440
)

// volumes mount by reference: a changed value reaches the files of running
// pods within the kubelet's sync period, and no pod is replaced for it.
func volumes(e *v1alpha1.WebhookEndpoint, refs []v1alpha1.SecretKeyRef) []*corev1ac.VolumeApplyConfiguration {
	database := e.Spec.Database.SecretRef
	all := []*corev1ac.VolumeApplyConfiguration{
		corev1ac.Volume().WithName(volumeConfig).
			WithConfigMap(corev1ac.ConfigMapVolumeSource().WithName(PipelineName(e.Name))),
		corev1ac.Volume().WithName(volumeDatabase).
			WithSecret(corev1ac.SecretVolumeSource().
				WithSecretName(database.Name).
				WithDefaultMode(secretMode).
				WithItems(corev1ac.KeyToPath().WithKey(database.Key).WithPath(databaseFile))),
	}
	if len(refs) > 0 {
		all = append(all, corev1ac.Volume().WithName(volumeSecrets).
			WithProjected(corev1ac.ProjectedVolumeSource().
				WithDefaultMode(secretMode).
				WithSources(projections(e.Namespace, refs)...)))
	}
	return all
}

// projections make each key of each Secret a file. All of it is optional: a
// pod whose Secret is missing runs, and refuses what it cannot verify or sign.
func projections(namespace string, refs []v1alpha1.SecretKeyRef) []*corev1ac.VolumeProjectionApplyConfiguration {
	refs = slices.Clone(refs)
	slices.SortFunc(refs, func(a, b v1alpha1.SecretKeyRef) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	})
	refs = slices.Compact(refs) // two destinations may sign with the same one
	var sources []*corev1ac.VolumeProjectionApplyConfiguration
	for i, ref := range refs {
		if i == 0 || ref.Name != refs[i-1].Name {
			sources = append(sources, corev1ac.VolumeProjection().
				WithSecret(corev1ac.SecretProjection().WithName(ref.Name).WithOptional(true)))
		}
		sources[len(sources)-1].Secret.WithItems(corev1ac.KeyToPath().
			WithKey(ref.Key).
			WithPath(SecretFile(namespace, ref)))
	}
	return sources
}

func volumeMounts(refs []v1alpha1.SecretKeyRef) []*corev1ac.VolumeMountApplyConfiguration {
	mount := func(volume, dir string) *corev1ac.VolumeMountApplyConfiguration {
		return corev1ac.VolumeMount().WithName(volume).WithMountPath(dir).WithReadOnly(true)
	}
	all := []*corev1ac.VolumeMountApplyConfiguration{mount(volumeConfig, configDir), mount(volumeDatabase, databaseDir)}
	if len(refs) > 0 {
		all = append(all, mount(volumeSecrets, keysDir))
	}
	return all
}
