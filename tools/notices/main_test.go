package main

import (
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestNoticesAndTheSBOMHaveAllThatIsLinked(t *testing.T) {
	dir := t.TempDir()
	if err := run([]string{"1.2.3", "../../cmd/lockline", dir}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "sbom.cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat, SpecVersion string
		Metadata               struct{ Component component }
		Components             []component
		Dependencies           []struct{ DependsOn []string }
	}
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	if bom.BOMFormat != "CycloneDX" || bom.SpecVersion != "1.5" ||
		bom.Metadata.Component.Version != "v1.2.3" {
		t.Errorf("%+v", bom)
	}
	notices, err := os.ReadFile(filepath.Join(dir, "THIRD_PARTY_NOTICES.txt"))
	if err != nil {
		t.Fatal(err)
	}

	program := filepath.Join(dir, "lockline")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir, build.Env = "../../cmd/lockline", append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	linked := 0
	for _, m := range info.Deps {
		if m.Path == own {
			continue
		}
		linked++
		i := slices.IndexFunc(bom.Components, func(c component) bool { return c.Name == m.Path })
		switch {
		case i < 0:
			t.Errorf("the SBOM has no %s", m.Path)
		case bom.Components[i].Version != m.Version || len(bom.Components[i].Licenses) == 0 ||
			!slices.Contains(bom.Dependencies[0].DependsOn, bom.Components[i].Ref):
			t.Errorf("%+v, linked is %s", bom.Components[i], m.Version)
		}
		if !strings.Contains(string(notices), "\n"+m.Path+" "+m.Version+"\n\nLICENSE") {
			t.Errorf("no notice of %s", m.Path)
		}
	}
	if linked < 5 || len(bom.Components) < linked {
		t.Errorf("%d modules are linked, %d in the SBOM", linked, len(bom.Components))
	}
	for _, copyright := range []string{"The Go Authors", "The github.com/redis/go-redis Authors",
		"Yusuke Inuzuka"} {
		if !strings.Contains(string(notices), copyright) {
			t.Errorf("no copyright of %s", copyright)
		}
	}
}

func TestLicensesAreRecognized(t *testing.T) {
	for text, want := range map[string]string{
		"Permission is hereby granted, free of charge,\n to any person obtaining a copy": "MIT",
		"Apache License\n Version 2.0, January 2004":                                     "Apache-2.0",
		"Redistribution and use in source and binary forms ... Neither the name of":      "BSD-3-Clause",
		"Redistribution and use in source and binary forms":                              "BSD-2-Clause",
		"GNU AFFERO GENERAL PUBLIC LICENSE":                                              "",
	} {
		if id, grants := classify("LICENSE", text); id != want || !grants {
			t.Errorf("%q: %q, %v", text, id, grants)
		}
	}
	if _, grants := classify("NOTICE", "This product includes"); grants {
		t.Error("a notice counts as a license")
	}
	dir := t.TempDir()
	odd := &linkedModule{Path: "example.com/odd", Version: "v1.0.0", Dir: dir,
		packages: map[string]bool{dir: true}}
	fails := func(says string) {
		t.Helper()
		if _, err := notices([]*linkedModule{odd}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
	fails("has no license")
	file := filepath.Join(dir, "LICENSE.md")
	if err := os.WriteFile(file, []byte("GNU AFFERO GENERAL PUBLIC LICENSE"), 0o600); err != nil {
		t.Fatal(err)
	}
	fails("is a license that this program does not know")
}

func TestNoticesAreOfAllSystemsOfARelease(t *testing.T) {
	text, err := os.ReadFile("../../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`goos: \[(.*)\]`).FindStringSubmatch(string(text))
	if m == nil || strings.Join(systems, ", ") != m[1] {
		t.Errorf("GoReleaser builds for %q, and notices looks at %q", m, systems)
	}
}
