package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// This test checks that the manifest is valid, and follows the advice of docs/operations.md.
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
	worker := deployment.Spec.Template.Spec.Containers[0]
	command, variable := strings.Join(worker.Command, " "), worker.Env[0].Name
	if command != "/worker "+exampleArgs || variable != "REDIS_URL" { // as the example has them
		t.Errorf("the worker's command is %s, and its variable %s", command, variable)
	}
	report := job.Spec.JobTemplate.Spec.Template.Spec.Containers[0]
	runsOnce(t, append(report.Command, report.Args...))
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

// exampleArgs are the arguments of examples/shutdown in a manifest or unit. A test of that example uses the
// same arguments.
const exampleArgs = "--after 0"

// runsOnce runs a command of a manifest or unit twice, with a job that ends immediately. The second run
// stands for another machine at the same tick, so it must not run the job.
func runsOnce(t *testing.T, command []string) {
	t.Helper()
	lockline := filepath.Join(t.TempDir(), "lockline")
	build := exec.Command("go", "build", "-o", lockline, "./cmd/lockline")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	job, ran := command[len(command)-1], filepath.Join(t.TempDir(), "ran")
	if filepath.Base(command[0]) != "lockline" || command[len(command)-2] != "--" || job[0] != '/' {
		t.Fatalf("the command is %q", command)
	}
	args := append(slices.Clone(command[1:len(command)-1]), "sh", "-c", `echo "$LOCKLINE_NAME" >>"$0"`, ran)
	server := miniredis.RunT(t)
	for range 2 {
		run := exec.Command(lockline, args...)
		run.Env = append(os.Environ(), "LOCKLINE_REDIS=redis://"+server.Addr())
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("%q: %v: %s", command, err, out)
		}
	}
	if text, err := os.ReadFile(ran); err != nil || string(text) != "report\n" {
		t.Errorf("%q ran %q, %v", command, text, err)
	}
}

// docs/deploying.md explains the units.
func TestTheUnitsOfSystemdAreValid(t *testing.T) {
	dir := t.TempDir()
	units, err := filepath.Glob("../../examples/systemd/*")
	if err != nil || len(units) != 3 {
		t.Fatalf("%q, %v", units, err)
	}
	args := []string{"verify"}
	for _, unit := range units {
		text, err := os.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		switch _, start, _ := strings.Cut(string(text), "\nExecStart="); filepath.Base(unit) {
		case "worker.service":
			if command, _, _ := strings.Cut(start, "\n"); command != "/usr/local/bin/worker "+exampleArgs {
				t.Errorf("the worker's command is %s", command)
			}
		case "report.service":
			command, _, _ := strings.Cut(start, "\n")
			runsOnce(t, strings.Fields(command))
		}
		if !strings.HasSuffix(unit, ".timer") && !strings.Contains(string(text), "\nKillMode=mixed\n") {
			t.Errorf("%s: SIGTERM goes to all processes", unit)
		}
		text = regexp.MustCompile(`/usr/local/bin/\w+`).ReplaceAll(text, []byte("/bin/sh"))
		copied := filepath.Join(dir, filepath.Base(unit))
		if err := os.WriteFile(copied, text, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, copied)
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("SKIPPED: no systemd-analyze in PATH")
	}
	out, err := exec.Command("systemd-analyze", args...).CombinedOutput()
	if err != nil || strings.Contains(string(out), dir) {
		t.Errorf("%v: %s", err, out)
	}
}
