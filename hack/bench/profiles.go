package main

import (
	"context"
	"os"
	"path/filepath"
)

// keepProfiles has an ingress and then a worker under load write profiles into
// the folder of the results. Apart from what is measured, which they slow down.
func keepProfiles(ctx context.Context, e *env) ([]figure, error) {
	s, url, err := e.open(ctx, 2)
	if err != nil {
		return nil, err
	}
	to, err := e.sink()
	if err != nil {
		return nil, err
	}
	ep := endpoint(to.url)
	c := configuration(ep)
	flags, err := e.profileFlags("ingress")
	if err != nil {
		return nil, err
	}
	p, err := e.ingress(ctx, url, c, flags...)
	if err != nil {
		return nil, err
	}
	if _, err := e.load(ctx, p.address, load{connections: 64, duration: 2 * e.duration}); err != nil {
		return nil, err
	}
	p.stop()

	if err := fill(ctx, s, url, ref(&ep), e.scaled(100_000, 5), e.body, 0); err != nil {
		return nil, err
	}
	if flags, err = e.profileFlags("worker"); err != nil {
		return nil, err
	}
	w, err := e.worker(ctx, url, c, flags...)
	if err != nil {
		return nil, err
	}
	if err := sleep(ctx, 2*e.duration); err != nil {
		return nil, err
	}
	w.stop()
	return nil, nil
}

// profileFlags make a folder for a process' profiles.
func (e *env) profileFlags(role string) ([]string, error) {
	dir, err := filepath.Abs(filepath.Join(e.out, "profile-"+role))
	if err != nil {
		return nil, err
	}
	return []string{"--profile-dir", dir}, os.MkdirAll(dir, 0o755)
}
