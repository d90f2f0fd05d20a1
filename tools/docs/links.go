//go:build unix

package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
)

// checkLinks returns the number of links, and an error for each wrong link.
func checkLinks(checkout string, pages []*page) (n int, errs []error) {
	byName := map[string]*page{}
	for _, p := range pages {
		byName[p.name] = p
	}
	for _, p := range pages {
		for _, l := range p.links {
			n++
			if err := p.checkLink(checkout, l.to, byName); err != nil {
				errs = append(errs, fmt.Errorf("%s: link to %q: %w", l.place, l.to, err))
			}
		}
	}
	return n, errs
}

func (p *page) checkLink(checkout, to string, pages map[string]*page) error {
	u, err := url.Parse(to)
	switch {
	case err != nil:
		return err
	case u.Scheme == "https" || u.Scheme == "http":
		if u.Hostname() == "" {
			return errors.New("no host")
		}
		return nil
	case u.Scheme == "mailto":
		return nil
	case u.Scheme != "" || u.Host != "" || path.IsAbs(u.Path):
		return errors.New("neither relative nor of a web page")
	}
	target := p.name
	if u.Path != "" {
		target = path.Join(path.Dir(p.name), u.Path)
	}
	if !filepath.IsLocal(filepath.FromSlash(target)) {
		return errors.New("leads out of the repository")
	}
	if _, err := os.Stat(filepath.Join(checkout, filepath.FromSlash(target))); err != nil {
		return fmt.Errorf("there is no %s", target)
	}
	if u.Fragment == "" {
		return nil
	}
	if other := pages[target]; other == nil || !other.anchors[u.Fragment] {
		return fmt.Errorf("there is no heading #%s in %s", u.Fragment, target)
	}
	return nil
}
