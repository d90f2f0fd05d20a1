// Notices writes the files about dependencies that a release needs into a folder:
//
//	go run ./notices VERSION PACKAGE FOLDER
//
// THIRD_PARTY_NOTICES.txt has the licenses of Go and of each module that is linked into the program. It
// includes the copyright lines, as these licenses demand. sbom.cdx.json lists these modules in the format
// CycloneDX 1.5, for scanners.
//
// The program is the package in the folder PACKAGE, on all systems of .goreleaser.yaml. An unknown license is
// an error, because a person must read it first. Notices uses the standard library alone, so it needs no
// module of tools.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: go run ./notices VERSION PACKAGE FOLDER")
	}
	version, program, folder := args[0], args[1], args[2]
	linked, err := modules(program)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	text, err := notices(linked)
	if err != nil {
		return err
	}
	bom, err := json.MarshalIndent(sbom(version, linked), "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(folder, "THIRD_PARTY_NOTICES.txt"), []byte(text), 0o644),
		os.WriteFile(filepath.Join(folder, "sbom.cdx.json"), append(bom, '\n'), 0o644))
}

// own is the beginning of the paths of this project's modules. The archive has their license anyway, so
// modules leaves them out.
const own = "github.com/lockline/lockline"

// systems are the values of GOOS in .goreleaser.yaml.
var systems = []string{"linux", "darwin", "windows", "freebsd"}

// A linkedModule is a module of which the program has packages.
type linkedModule struct {
	Path, Version, Dir string
	packages           map[string]bool // folders of linked packages
	licenses           []string        // SPDX ids of the licenses
}

// modules returns the modules that are linked into a program on at least one system, sorted by path. Go
// itself comes first.
func modules(program string) ([]*linkedModule, error) {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	std := &linkedModule{Path: "std", Version: strings.TrimPrefix(runtime.Version(), "go"),
		Dir: strings.TrimSpace(string(goroot))}
	std.packages = map[string]bool{std.Dir: true}
	byPath := map[string]*linkedModule{}
	for _, system := range systems {
		list := exec.Command("go", "list", "-deps", "-json=Dir,Module", ".")
		list.Dir = program
		list.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOARCH=amd64", "GOOS="+system)
		list.Stderr = os.Stderr
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("go list for %s: %w", system, err)
		}
		for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
			var p struct {
				Dir    string
				Module *linkedModule
			}
			if err := decoder.Decode(&p); err != nil {
				return nil, err
			}
			if p.Module == nil || strings.HasPrefix(p.Module.Path+"/", own+"/") {
				continue
			}
			if byPath[p.Module.Path] == nil {
				byPath[p.Module.Path] = p.Module
				p.Module.packages = map[string]bool{}
			}
			byPath[p.Module.Path].packages[p.Dir] = true
		}
	}
	byName := func(a, b *linkedModule) int { return cmp.Compare(a.Path, b.Path) }
	return append([]*linkedModule{std}, slices.SortedFunc(maps.Values(byPath), byName)...), nil
}

// licenseFiles returns the files with licenses and notices in the folders of the linked packages, and in all
// folders above these, up to the folder of the module.
func (m *linkedModule) licenseFiles() ([]string, error) {
	found := map[string]bool{}
	for dir := range m.packages {
		for {
			entries, err := os.ReadDir(dir)
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				if !e.IsDir() && isLicense(e) {
					found[filepath.Join(dir, e.Name())] = true
				}
			}
			if dir == m.Dir || len(dir) <= len(m.Dir) {
				break
			}
			dir = filepath.Dir(dir)
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

func isLicense(e fs.DirEntry) bool {
	name, extension := strings.ToUpper(e.Name()), strings.ToUpper(filepath.Ext(e.Name()))
	if extension == ".GO" || extension == ".PY" {
		return false
	}
	return slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "PATENTS"},
		func(begin string) bool { return strings.HasPrefix(name, begin) })
}

// notices returns the texts of the licenses of all modules, and sets the field licenses of each module.
func notices(linked []*linkedModule) (string, error) {
	var text strings.Builder
	text.WriteString("The program lockline contains these works of others.\n")
	for _, m := range linked {
		files, err := m.licenseFiles()
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "\n%s\n%s %s\n", strings.Repeat("=", 80), cmp.Or(m.title(), m.Path), m.Version)
		for _, file := range files {
			license, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			name, err := filepath.Rel(m.Dir, file)
			if err != nil {
				return "", err
			}
			if id, grants := classify(name, string(license)); grants {
				if id == "" {
					return "", fmt.Errorf("%s %s: %s is a license that this program does not know: read it, "+
						"and add it to classify", m.Path, m.Version, name)
				}
				if !slices.Contains(m.licenses, id) {
					m.licenses = append(m.licenses, id)
				}
			}
			fmt.Fprintf(&text, "\n%s:\n\n%s\n", filepath.ToSlash(name), strings.TrimSpace(string(license)))
		}
		if len(m.licenses) == 0 {
			return "", fmt.Errorf("%s %s has no license", m.Path, m.Version)
		}
	}
	return text.String(), nil
}

func (m *linkedModule) title() string {
	if m.Path == "std" {
		return "Go and its standard library"
	}
	return ""
}

// classify returns the SPDX id of a license, or "" if it is not known. grants is false if the file is no
// license, but a notice beside a license.
func classify(name, text string) (id string, grants bool) {
	base := strings.ToUpper(filepath.Base(name))
	if strings.HasPrefix(base, "NOTICE") || strings.HasPrefix(base, "PATENTS") {
		return "", false
	}
	text = strings.Join(strings.Fields(text), " ")
	has := func(words string) bool { return strings.Contains(text, words) }
	switch {
	case has("Apache License") && has("Version 2.0"):
		return "Apache-2.0", true
	case has("Permission is hereby granted, free of charge, to any person obtaining a copy"):
		return "MIT", true
	case has("Redistribution and use in source and binary forms") && has("Neither the name"):
		return "BSD-3-Clause", true
	case has("Redistribution and use in source and binary forms"):
		return "BSD-2-Clause", true
	case has("This is free and unencumbered software released into the public domain"):
		return "Unlicense", true
	case has("Boost Software License - Version 1.0"):
		return "BSL-1.0", true
	case has("Permission to use, copy, modify, and/or distribute this software for any purpose"):
		return "ISC", true
	}
	return "", true
}

// component is an entry of a document in the format of CycloneDX.
type component struct {
	Type     string    `json:"type"`
	Ref      string    `json:"bom-ref"`
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	PURL     string    `json:"purl"`
	Licenses []license `json:"licenses"`
}

type license struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

func newComponent(kind, path, version string, ids ...string) component {
	purl := "pkg:golang/" + path + "@" + version
	c := component{Type: kind, Ref: purl, Name: path, Version: version, PURL: purl}
	for _, id := range ids {
		var l license
		l.License.ID = id
		c.Licenses = append(c.Licenses, l)
	}
	return c
}

// sbom returns a document of CycloneDX 1.5. It has no time and no serial number, so the same commit makes the
// same file.
func sbom(version string, linked []*linkedModule) any {
	program := newComponent("application", own+"/cmd/lockline", "v"+strings.TrimPrefix(version, "v"), "MIT")
	var components []component
	var refs []string
	for _, m := range linked {
		c := newComponent("library", m.Path, m.Version, m.licenses...)
		components, refs = append(components, c), append(refs, c.Ref)
	}
	return map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata":     map[string]any{"component": program},
		"components":   components,
		"dependencies": []any{map[string]any{"ref": program.Ref, "dependsOn": refs}},
	}
}
