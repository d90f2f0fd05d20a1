package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// What the manifest says is what docs/operations.md asks for.
func TestTheKubernetesManifestIsValid(t *testing.T) {
	text, err := os.ReadFile("../../examples/shutdown/kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	deployment, job := new(appsv1.Deployment), new(batchv1.CronJob)
	parts := strings.Split(string(text), "\n---\n")
	for i, object := range []any{deployment, job} {
		if err := yaml.UnmarshalStrict([]byte(parts[i]), object); err != nil {
			t.Fatal(err)
		}
	}
	if len(parts) != 2 || deployment.Kind != "Deployment" || job.Kind != "CronJob" {
		t.Errorf("%d objects, %s and %s", len(parts), deployment.Kind, job.Kind)
	}
	for name, pod := range map[string]corev1.PodSpec{
		deployment.Name: deployment.Spec.Template.Spec,
		job.Name:        job.Spec.JobTemplate.Spec.Template.Spec,
	} {
		if s := pod.TerminationGracePeriodSeconds; s == nil || *s < 30 {
			t.Errorf("%s: it has no time to give its locks back", name)
		}
		for _, c := range pod.Containers {
			secret := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
				return (e.Name == "REDIS_URL" || e.Name == "LOCKLINE_REDIS") &&
					e.ValueFrom.SecretKeyRef != nil
			})
			if _, cpu := c.Resources.Limits[corev1.ResourceCPU]; cpu || !secret {
				t.Errorf("%s: a CPU limit: %v; the URL of Redis from a secret: %v", name, cpu, secret)
			}
		}
	}
}
